"""Every way in which data are wrong gives one line that names dataset, item and remedy."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typing_extensions import override

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset, part


def refusal(spec: DatasetSpec, job: DataSpec, root: Path) -> str:
    with pytest.raises(DataInvalid) as caught:
        load(spec, job, root=root)
    message = str(caught.value)
    assert message.startswith("dataset 'scans': ")
    assert "\n" not in message
    assert ";" in message, "the remedy follows the problem"
    return message


ZEROS = np.zeros((4, 2), dtype=np.float32)
LABELS = np.array([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (
            ZEROS,
            [0, 1, 3, 0],
            "item 2: label 3 is not a class of the job (data.classes is 3); number classes from 0",
        ),
        (ZEROS, [0, -1, 1, 0], "item 1: label -1 is not a class"),
        (ZEROS, [0, 1, 1.5, 0], "item 2: label 1.5 is not an integer; number classes from 0 to 2"),
        (ZEROS, [0, np.nan, 1, 0], "item 1: label nan is not an integer"),
        (ZEROS, ["a", "b", "c", "d"], "labels have dtype <U1; give a numeric array"),
        (ZEROS, [True, False, True, True], "labels have dtype bool"),
        (
            ZEROS,
            [0, 1],
            "features of shape (4, 2) and labels of shape (2,) do not pair up; give one label per",
        ),
        (ZEROS, np.eye(4, dtype=int), "labels of shape (4, 4) do not pair up"),
        (np.float32(0), [0], "features of shape ()"),
        (ZEROS[:0], LABELS[:0], "there is not a single sample; give at least one"),
        (ZEROS.astype(int), LABELS, "features have dtype int64; give uint8 (0 to 255) or float32"),
        (ZEROS.astype(complex), LABELS, "features have dtype complex128; give a numeric array"),
        (
            np.zeros((4, 3)),
            LABELS,
            "items have shape [3], but data.inputShape of the job is [2]; convert the data",
        ),
        (
            np.array([[0, 0], [0, 1], [np.nan, 0], [0, 0]]),
            LABELS,
            "item 2: features contain nan; remove or mend",
        ),
        (np.array([[0, 0], [0, -np.inf], [0, 0], [0, 0]]), LABELS, "item 1: features contain -inf"),
        (np.array([[0, 0], [0, 0], [0, 0], [0, 1e300]]), LABELS, "item 3: features contain inf"),
    ],
)
def test_arrays(tmp_path: Path, features: Any, labels: Any, message: str) -> None:
    np.savez(tmp_path / "a.npz", images=features, labels=labels)
    assert message in refusal(dataset("npz", path="a.npz"), data(2, classes=3), tmp_path)


def test_images_of_another_shape(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 28, 28), np.uint8), labels=[0])
    message = refusal(dataset("npz", path="a.npz"), data(3, 32, 32), tmp_path)
    assert "items have shape [28, 28], but data.inputShape of the job is [3, 32, 32]" in message


def test_npz_that_is_not_there(tmp_path: Path) -> None:
    message = refusal(dataset("npz", path="absent.npz"), data(2), tmp_path)
    assert "config.path: " in message
    assert "absent.npz' is not a file; mount the data there or correct the path" in message


def test_npz_without_the_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=ZEROS, targets=LABELS)
    message = refusal(dataset("npz", path="a.npz"), data(2), tmp_path)
    assert "config.labels: 'labels' is not an array of" in message
    assert message.endswith("use one of images, targets")


class Bomb:
    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("exploded").touch, ())


def test_npz_with_objects_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "a.npz", images=np.array([Bomb()], dtype=object), labels=[0])
    assert "cannot be read" in refusal(dataset("npz", path="a.npz"), data(2), tmp_path)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 cut short", b"plain text", pickle.dumps({"images": 1})],
    ids=["empty", "cut", "text", "pickle"],
)
def test_npz_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    assert "cannot be read" in refusal(dataset("npz", path="a.npz"), data(2), tmp_path)


def test_npz_with_a_damaged_member(tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "a.npz", images=np.random.RandomState(0).rand(500, 2), labels=np.zeros(500, int)
    )
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[2000:2100] = bytes(100)
    (tmp_path / "a.npz").write_bytes(content)
    assert "cannot be read" in refusal(dataset("npz", path="a.npz"), data(2), tmp_path)


def test_npy_in_place_of_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ZEROS)
    message = refusal(dataset("npz", path="a.npy"), data(2), tmp_path)
    assert "cannot be read (File is not a zip file); write numeric arrays with numpy.savez" in message


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "1.png")
    return tmp_path


IMAGES = dataset("imagefolder", path=".")


def test_folders_themselves_are_fine(folders: Path) -> None:
    (folders / "cat" / ".DS_Store").write_bytes(b"hidden")
    (folders / ".cache").mkdir()
    assert load(IMAGES, data(3, 4, 4, classes=2), root=folders).labels.tolist() == [0, 1]


def test_image_folder_that_is_not_there(tmp_path: Path) -> None:
    message = refusal(dataset("imagefolder", path="absent"), data(3, 4, 4), tmp_path)
    assert "absent' is not a folder; mount the data there" in message


def test_another_number_of_class_folders(folders: Path) -> None:
    message = refusal(IMAGES, data(3, 4, 4, classes=3), folders)
    assert "holds 2 class folders, but data.classes of the job is 3; give one folder per class" in message


def test_an_empty_class_folder(folders: Path) -> None:
    (folders / "dog" / "1.png").unlink()
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert "class folder 'dog' is empty; add images" in message


def test_what_a_folder_would_pass_over(folders: Path) -> None:
    (folders / "dog" / ".ipynb_checkpoints").mkdir()
    (folders / "dog" / ".ipynb_checkpoints" / "1-checkpoint.png").write_bytes(b"hidden")
    assert len(load(IMAGES, data(3, 4, 4, classes=2), root=folders)) == 2
    (folders / "dog" / "2.png").symlink_to("/nowhere")
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert message.endswith("'dog/2.png' is a link to nothing; mend or remove it")
    (folders / "dog" / "2.png").unlink()
    (folders / "dog" / "more").symlink_to(folders / "cat")
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert message.endswith(
        "'dog/more' is a link to a folder, which is not followed; put the images in its place"
    )
    (folders / "dog" / "more").unlink()
    os.mkfifo(folders / "dog" / "pipe.png")
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert message.endswith("'dog/pipe.png' is no file that holds an image; mend or remove it")
    (folders / "ox").symlink_to("/nowhere")
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert message.endswith("class folder 'ox' is a link to nothing; mend or remove it")


@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n\x00\x00"], ids=["empty", "text", "cut"]
)
def test_a_file_that_cannot_be_decoded(folders: Path, content: bytes) -> None:
    (folders / "dog" / "2.png").write_bytes(content)
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert "'dog/2.png' cannot be decoded as an image" in message
    assert message.endswith("; repair or remove it")


def test_a_truncated_jpeg(folders: Path) -> None:
    noise = np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(noise).save(folders / "dog" / "2.jpg")
    content = (folders / "dog" / "2.jpg").read_bytes()
    (folders / "dog" / "2.jpg").write_bytes(content[: len(content) // 2])
    assert "'dog/2.jpg' cannot be decoded" in refusal(IMAGES, data(3, 4, 4, classes=2), folders)


def test_an_image_of_another_shape(folders: Path) -> None:
    Image.new("RGB", (5, 4)).save(folders / "dog" / "2.png")
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert "'dog/2.png' has shape [3, 4, 5], but data.inputShape of the job is [3, 4, 4]" in message
    assert "set config.size to [4, 4] to resize" in message


def test_sixteen_bit_images_are_not_clipped(folders: Path) -> None:
    Image.fromarray(np.full((4, 4), 4000, dtype=np.uint16)).save(folders / "dog" / "2.png")
    message = refusal(IMAGES, data(1, 4, 4, classes=2), folders)
    assert (
        "'dog/2.png' has more than 8 bits per pixel (mode I;16), which would be clipped; convert it"
        in message
    )


def test_images_of_8_bits_among_those_of_16(folders: Path) -> None:
    deep = dataset("imagefolder", path=".", bits=16)
    message = refusal(deep, data(1, 4, 4, classes=2), folders)
    assert (
        "'cat/1.png' is not a grey image of 16 bits (mode RGB), but config.bits is 16; convert it" in message
    )
    message = refusal(deep, data(3, 4, 4, classes=2), folders)
    assert "config.bits: 16 is for grey images, but data.inputShape of the job is [3, 4, 4]" in message


def test_images_for_a_job_on_vectors(folders: Path) -> None:
    message = refusal(IMAGES, data(48, classes=2), folders)
    assert "gives 1 or 3 channels, but data.inputShape of the job is [48]" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nonsense", "loader: torchvision has no dataset 'Nonsense'"),
        ("FakeData", "loader: torchvision's 'FakeData' has no train and test split; use a python: loader"),
        ("MNIST", "set config.download to true"),
        ("CIFAR10", "set config.download to true"),
        ("SVHN", "torchvision cannot open 'SVHN'"),
    ],
)
def test_torchvision_that_cannot_be_opened(tmp_path: Path, name: str, message: str) -> None:
    assert message in refusal(dataset(f"torchvision:{name}", path="."), data(3, 32, 32), tmp_path)


def test_a_partition_that_leaves_this_silo_empty(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=ZEROS, labels=LABELS)
    message = refusal(
        dataset("npz", part("map", 1, variant="shard", labelsPerSilo=3), path="a.npz"),
        data(2, classes=3),
        tmp_path,
    )
    assert (
        "partition.index: part 0 of 1 (scheme 'map') is empty; use fewer silos or change the seed" in message
    )


def test_a_partition_over_too_many_silos(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=ZEROS, labels=LABELS)
    message = refusal(dataset("npz", part("iid", 5), path="a.npz"), data(2, classes=3), tmp_path)
    assert "partition 'iid': silos: 5 is more than the 4 samples; use fewer silos" in message
