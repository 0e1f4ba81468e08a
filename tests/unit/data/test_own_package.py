"""The package of docs/own-package.md: its loaders on files made here, and its Dockerfile carried out step by step."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from fedsilo.data.loaders import load
from fedsilo.data.sources import LazyFeatures
from fedsilo.errors import DataInvalid
from tests.pages import blocks, runs
from tests.paths import ROOT
from tests.terminal import Terminal
from tests.unit.data.specs import data, dataset

PAGE = "docs/own-package.md"
PACKAGE = ROOT / "examples/own-package"
VOLUMES = np.random.RandomState(0).randint(-1000, 2000, (4, 3, 5, 6)).astype(np.int16)
"""(n, depth, height, width)."""

CLASSES = ("lesion", "normal")


@pytest.fixture(autouse=True)
def installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package as if it were installed."""
    monkeypatch.syspath_prepend(PACKAGE)


def write_nifti(root: Path, volume: np.ndarray, label: int, number: int) -> None:
    """Write a volume as a scanner does that counts its first axis from right to left."""
    folder = root / CLASSES[label]
    folder.mkdir(exist_ok=True)
    stored = volume.transpose(2, 1, 0)[::-1]
    image = nibabel.Nifti1Image(stored, np.diag([-1.0, 1.0, 1.0, 1.0]))  # type: ignore[no-untyped-call]
    nibabel.save(image, folder / f"{number}.nii.gz")


def write_dicom(root: Path, volume: np.ndarray, label: int, number: int) -> None:
    """One file for each slice, the last one first, with values that are stored from 0 on."""
    folder = root / CLASSES[label] / f"series{number}"
    folder.mkdir(parents=True)
    for place, pixels in enumerate(volume[::-1]):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        one = pydicom.Dataset()
        one.file_meta = meta
        one.SOPClassUID, one.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
        one.Rows, one.Columns = pixels.shape
        one.BitsAllocated = one.BitsStored = 16
        one.HighBit, one.PixelRepresentation, one.SamplesPerPixel = 15, 0, 1
        one.PhotometricInterpretation = "MONOCHROME2"
        one.RescaleSlope, one.RescaleIntercept = 1, -1024
        one.ImagePositionPatient = [0, 0, float(len(volume) - place)]
        one.PixelData = (pixels + 1024).astype(np.uint16).tobytes()
        one.save_as(folder / f"{place}.dcm", enforce_file_format=True)


@pytest.mark.parametrize("kind", ["nifti", "dicom"])
def test_volumes_are_read_when_they_are_needed(kind: str, tmp_path: Path) -> None:
    for number, volume in enumerate(VOLUMES):
        {"nifti": write_nifti, "dicom": write_dicom}[kind](tmp_path, volume, number // 2, number)
    spec = dataset(f"python:scans.loaders:{kind}", path=str(tmp_path))
    arrays = load(spec, data(1, 3, 5, 6, classes=2), root=tmp_path)
    assert isinstance(arrays.features, LazyFeatures)
    assert arrays.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(arrays.features[:, 0], VOLUMES)
    with pytest.raises(
        DataInvalid, match=r"items have shape \[3, 5, 6\], but data.inputShape .* \[1, 3, 5, 7\]"
    ):
        load(spec, data(1, 3, 5, 7, classes=2), root=tmp_path)


def test_the_page_shows_the_package() -> None:
    (dockerfile,) = blocks(PAGE, "dockerfile")
    assert dockerfile == (PACKAGE / "Dockerfile").read_text()
    (program,) = blocks(PAGE, "python")
    assert program in (PACKAGE / "scans/loaders.py").read_text()


BUILDER = """
import re, shutil, subprocess, sys
from pathlib import Path
from argparse import ArgumentParser

parser = ArgumentParser()
parser.add_argument("command", choices=["build"])
parser.add_argument("-f", dest="file", type=Path, required=True)
parser.add_argument("-t", dest="tag", required=True)
parser.add_argument("--build-arg", action="append")
parser.add_argument("context", type=Path)
args = parser.parse_args()
given = dict(each.split("=", 1) for each in args.build_arg)
image = Path({root!r}, args.tag.rpartition("/")[2].partition(":")[0])
inside = lambda text: re.sub("/(tmp|opt)/", lambda found: f"{{image}}{{found[0]}}", text)
for line in re.sub(r"\\\\\\n", " ", args.file.read_text()).splitlines():
    word, _, rest = line.partition(" ")
    if word == "FROM":
        Path(image, "opt/fedsilo").mkdir(parents=True)
        Path(image, "opt/fedsilo/extras.txt").touch()
        Path(image, "from").write_text(given[rest.strip("${{}}")])
    elif word == "COPY":
        source, target = rest.split()
        shutil.copytree(args.context / source, inside(target))
    elif word == "RUN":
        subprocess.run(["sh", "-ec", inside(rest)], check=True)
    elif word == "USER":
        Path(image, "user").write_text(rest)
    else:
        assert word in ("", "#", "ARG"), line
"""
"""A builder that carries a Dockerfile out in a directory: /tmp and /opt are the image's."""

PYTHON3 = """#!/bin/sh
test "$1 $2" = "-m venv"
mkdir -p "$3/bin"
printf '%s\\n' '#!/bin/sh' \
    'test "$1 $3 $4 $5" = "--python install --no-cache-dir --constraint" && test -f "$6" && test -d "$7"' \
    'exec {python} -m uv pip install -q --offline --no-build-isolation --no-deps --target "${{6%/*}}/packages" "$7"' \
    > "$3/bin/pip"
chmod 755 "$3/bin/pip"
"""
"""A python3 whose environments have a pip that installs without a registry."""


@runs("docs/own-package.md")
def test_the_builds_of_the_page_install_the_package(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, python3 = terminal.folder.parent / "docker", terminal.folder.parent / "python3"
    root = terminal.folder.parent / "images"
    script = BUILDER.format(root=str(root))
    builder.write_text(f"#!{sys.executable}\n{script}")
    python3.write_text(PYTHON3.format(python=sys.executable))
    for program in (builder, python3):
        program.chmod(0o755)
    terminal.environment["PATH"] = f"{python3.parent}:{terminal.environment['PATH']}"
    for command in terminal.commands:
        terminal.type(command, {"docker": str(builder)})
    for part in ("trainer", "aggregator"):
        image = root / f"scans-{part}"
        assert (image / "from").read_text() == f"registry.example/fedsilo-{part}:0.1.0"
        assert (image / "user").read_text() == "65532:65532"
        assert not list((image / "tmp").iterdir())
        packages = image / "opt/fedsilo/packages"
        code = "import scans.loaders as found; print(found.__file__)"
        said = subprocess.run([sys.executable, "-c", code], cwd=packages, capture_output=True, text=True)
        assert said.stdout.strip() == str(packages / "scans/loaders.py"), said.stderr


@pytest.mark.parametrize("dockerfile", ["silo-agent/Dockerfile", "aggregator/Dockerfile"])
def test_the_images_have_what_the_dockerfile_needs(dockerfile: str) -> None:
    text = (ROOT / dockerfile).read_text()
    own = (PACKAGE / "Dockerfile").read_text()
    (constraints,) = re.findall(r"--constraint (\S+)", own)
    folder, _, name = constraints.rpartition("/")
    assert re.search(rf"COPY --from=\S+ /build/{name} {folder}/\n", text)
    assert (
        f"python3 -m venv --without-pip {folder}\n" in text
        or f"python3 -m venv --without-pip {folder} " in text
    )
    assert re.findall("^USER (.*)$", own, re.MULTILINE) == [
        "0",
        *set(re.findall("^USER (.*)$", text, re.MULTILINE)),
    ]
