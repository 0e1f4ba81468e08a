"""Files and functions that no person would write by mistake: each costs a line that names it, and nothing more."""

from __future__ import annotations

import io
import os
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.data.loaders import load
from tests.unit.data.specs import data, dataset
from tests.unit.data.test_bad_data import IMAGES, LABELS, ZEROS, folders, refusal

__all__ = ["folders"]

NPZ = dataset("npz", path="a.npz")


def npz(root: Path, **changed: Any) -> None:
    """An archive whose entry of the features says something else of itself."""
    np.savez(root / "a.npz", images=ZEROS, labels=LABELS)
    content = bytearray((root / "a.npz").read_bytes())
    # Flags and compression follow signature and versions: in front of the data, and in the directory at the end.
    for signature, start in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.index(signature) + start
        content[place : place + 4] = struct.pack("<HH", changed.get("flags", 0), changed.get("method", 0))
    (root / "a.npz").write_bytes(content)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"flags": 1}, "'images.npy' is encrypted"),
        ({"method": 99}, "That compression method is not supported"),
        ({"method": 12}, "Invalid data stream"),
        ({"method": 14}, "cannot be read ("),
    ],
    ids=["encrypted", "unknown", "bz2", "lzma"],
)
def test_an_archive_that_cannot_be_unpacked(tmp_path: Path, changed: dict[str, int], said: str) -> None:
    npz(tmp_path, **changed)
    message = refusal(NPZ, data(2, classes=3), tmp_path)
    assert "a.npz' cannot be read (" in message
    assert said in message


@pytest.mark.parametrize("shape", [(10**15,), (10**15, 2), (10**18, 10**18), (-1, 2), (10**10, 2)], ids=str)
def test_an_array_that_claims_more_than_the_file_has(shape: tuple[int, ...], tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", member.getvalue() + bytes(32))
        labels = io.BytesIO()
        np.save(labels, LABELS)
        archive.writestr("labels.npy", labels.getvalue())
    assert "a.npz' cannot be read (" in refusal(NPZ, data(2, classes=3), tmp_path)


MODULES = {
    "syntax": "def load(:\n",
    "leaving": "import sys\nsys.exit(0)\n",
    "raising": "raise ValueError\n",
    "mute": "class Mute(Exception):\n    def __str__(self):\n        raise self\n\nraise Mute\n",
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "syntax",
            "its module raises SyntaxError: invalid syntax (hostile_syntax.py, line 1); correct the module",
        ),
        ("leaving", "its module raises SystemExit: 0 at FILE:2; correct the module"),
        ("raising", "its module raises ValueError without a message at FILE:1; correct the module"),
        ("mute", "its module raises Mute without a message at FILE:5; correct the module"),
    ],
)
def test_a_module_that_cannot_be_imported(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / f"hostile_{name}.py"
    module.write_text(MODULES[name])
    monkeypatch.syspath_prepend(tmp_path)
    assert said.replace("FILE", str(module)) in refusal(
        dataset(f"python:hostile_{name}:load"), data(2), tmp_path
    )


class HostileArray:
    """What converts to an array in its own way."""

    def __init__(self, result: object) -> None:
        self.result = result

    def __len__(self) -> int:
        return 4

    def __array__(self, *_: object, **__: object) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def hostile_arrays(kind: str) -> tuple[Any, Any]:
    """Features as a hostile function gives them."""
    results: dict[str, object] = {
        "key": KeyError("rows"),
        "empty": ZeroDivisionError(),
        "leaving": SystemExit(0),
        "memory": MemoryError(),
        "text": "no array",
        "objects": np.array([object()] * 4),
        "lines": ValueError("\n\n  first said here\nand more"),
        "long": ValueError("x" * 100_000),
    }
    return HostileArray(results[kind]), [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("key", "features are not an array ('rows'); give a numeric array"),
        ("empty", "features are not an array (ZeroDivisionError); give"),
        ("leaving", "features are not an array (0); give"),
        ("memory", "features are not an array (MemoryError); give"),
        ("text", "features are not an array ("),
        ("objects", "features have dtype object; give"),
        ("lines", "features are not an array (first said here); give"),
        ("long", "features are not an array (xxx"),
    ],
)
def test_features_with_an_odd_conversion(kind: str, said: str, tmp_path: Path) -> None:
    message = refusal(dataset(f"python:{__name__}:hostile_arrays", kind=kind), data(2, classes=2), tmp_path)
    assert said in message
    assert len(message) < 3000


def ending(code: object) -> tuple[Any, Any]:
    """Features of a function that ends the process."""
    sys.exit(code)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "said"), [(0, "raised SystemExit: 0"), (None, "raised SystemExit"), ("bye", "bye")]
)
def test_a_function_that_ends_the_process(code: object, said: str, tmp_path: Path) -> None:
    message = refusal(dataset(f"python:{__name__}:ending", code=code), data(2), tmp_path)
    assert said in message
    assert message.endswith("; correct the function or its config")


def raising() -> tuple[Any, Any]:
    """Features of a function that says nothing."""
    raise AssertionError


def test_a_function_that_raises_without_a_word(tmp_path: Path) -> None:
    message = refusal(dataset(f"python:{__name__}:raising"), data(2), tmp_path)
    assert "raised AssertionError without a message; correct the function" in message


def forbid(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nobody look into a folder, not even root."""
    scandir, listdir = os.scandir, os.listdir

    def refuse(path: Any) -> None:
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(path))

    def scan(path: Any = ".") -> Any:
        refuse(path)
        return scandir(path)

    def names(path: Any = ".") -> Any:
        refuse(path)
        return listdir(path)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "listdir", names)


@pytest.mark.parametrize("name", [".", "dog", "dog/more"])
def test_a_folder_that_may_not_be_read_is_not_empty(
    name: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "dog" / "more").mkdir()
    forbid(monkeypatch, folders / name)
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert (
        f"{str(folders / name)!r} cannot be read (Permission denied); give this process the right" in message
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_class_folder_that_one_may_not_enter(mode: int, folders: Path) -> None:
    (folders / "dog").chmod(mode)
    try:
        assert "cannot be read (Permission denied)" in refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    finally:
        (folders / "dog").chmod(0o700)


def test_images_in_folders_of_a_class_folder_count(folders: Path) -> None:
    (folders / "dog" / "more").mkdir()
    (folders / "dog" / "1.png").rename(folders / "dog" / "more" / "1.png")
    assert load(IMAGES, data(3, 4, 4, classes=2), root=folders).labels.tolist() == [0, 1]


def chunk(kind: bytes, content: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, colour: int, pixels: bytes) -> bytes:
    """A PNG file, as ISO/IEC 15948 has it."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(pixels)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_an_image_of_a_million_pixels_a_side_is_not_unpacked(folders: Path) -> None:
    (folders / "dog" / "2.png").write_bytes(png(10**6, 10**6, 8, 2, b""))
    assert "'dog/2.png' is too large to be decoded" in refusal(IMAGES, data(3, 4, 4, classes=2), folders)


def test_an_image_of_another_shape_is_not_unpacked(folders: Path) -> None:
    (folders / "dog" / "2.png").write_bytes(png(9000, 9000, 8, 2, b"no pixels at all"))
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert "'dog/2.png' has shape [3, 9000, 9000], but data.inputShape" in message


def test_a_size_of_a_million_pixels_a_side_is_refused_before_any_image(folders: Path) -> None:
    message = refusal(
        dataset("imagefolder", path=".", size=[10**6, 10**6]), data(3, 4, 4, classes=2), folders
    )
    assert "config.size: [1000000, 1000000] is not the height and width of data.inputShape" in message
    assert message.endswith("; set it to [4, 4], or correct the job")


def test_more_pixels_than_memory_holds(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 24.0 GiB")

    monkeypatch.setattr(np, "empty", empty)
    message = refusal(IMAGES, data(3, 65536, 65536, classes=2), folders)
    assert "does not fit into memory (Unable to allocate 24.0 GiB); give the trainer more" in message


DEEP_IMAGES = {
    "rgb.png": png(4, 4, 16, 2, (b"\0" + bytes(24)) * 4),
    "rgba.png": png(4, 4, 16, 6, (b"\0" + bytes(32)) * 4),
    "grey.png": png(4, 4, 16, 4, (b"\0" + bytes(16)) * 4),
    "rgb.ppm": b"P6 4 4 65535\n" + bytes(96),
    "rgb12.ppm": b"P6 4 4 4095\n" + bytes(96),
    "plain.ppm": b"P3 4 4 65535\n" + b"0 " * 48,
}


@pytest.mark.parametrize("name", DEEP_IMAGES)
def test_colours_of_sixteen_bits_are_not_cut(name: str, folders: Path) -> None:
    (folders / "dog" / name).write_bytes(DEEP_IMAGES[name])
    message = refusal(IMAGES, data(3, 4, 4, classes=2), folders)
    assert f"'dog/{name}' has more than 8 bits per pixel (mode " in message
    assert message.endswith("which would be clipped; convert it, or give float32 through an npz loader")


def test_a_tiff_of_sixteen_bits_a_colour_is_not_cut(folders: Path) -> None:
    tags = [(256, 4, 4), (257, 4, 4), (258, 3, 3), (259, 3, 1), (262, 3, 2), (273, 4, 200), (277, 3, 3)]
    tags += [(278, 4, 4), (279, 4, 96)]
    entries = b"".join(
        struct.pack("<HHI", tag, kind, 3 if tag == 258 else 1)
        + struct.pack("<I", 180 if tag == 258 else value)
        for tag, kind, value in tags
    )
    content = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags)) + entries + bytes(4)
    content = content.ljust(180, b"\0") + struct.pack("<HHH", 16, 16, 16)
    (folders / "dog" / "rgb.tif").write_bytes(content.ljust(200, b"\0") + bytes(96))
    assert "'dog/rgb.tif' has more than 8 bits per pixel (mode RGB;16" in refusal(
        IMAGES, data(3, 4, 4, classes=2), folders
    )


@pytest.mark.parametrize("name", ["8.png", "8.ppm", "8.tif", "b.png", "p.png", "8.bmp", "8.gif"])
def test_images_of_at_most_eight_bits_are_taken(name: str, folders: Path) -> None:
    mode = {"b": "1", "p": "P"}.get(name[0], "RGB")
    Image.new(mode, (4, 4)).save(folders / "dog" / name)
    assert len(load(IMAGES, data(3, 4, 4, classes=2), root=folders)) == 3
