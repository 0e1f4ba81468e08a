"""What a machine with a GPU and PyTorch, and without any network, lacks to run the command: one folder in the checkout.

    make gpu-bundle DATA=/data GPU_PYTHON=3.11

It holds wheels for Linux on x86-64 of everything but PyTorch, torchvision and scikit-learn with what these need, the
images of CIFAR-10, and a script that runs the command with both.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.gpu.running import ROOT
from benchmarks.tables.layouts import cifar10, write_jpeg
from benchmarks.tables.results import revision

PREINSTALLED_PACKAGES = ("torch", "torchvision", "scikit-learn")
"""Packages that images with PyTorch have; they, and what they need, do not travel."""

REQUIRED_PACKAGES = ("fedsilo[local,metrics] @ .", "pytest", "pytest-asyncio", "pytest-timeout", "hypothesis")
MANYLINUX = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_24",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux1",
)
MOST_BYTES = 60_000_000
SOURCES = ("fedsilo", "aggregator", "silo-agent", "operator", "benchmarks", "tests")

RUN = """#!/bin/sh
# Measures fedsilo on this machine's GPU; options are those of `python -m benchmarks.gpu`.
set -e
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
if [ ! -d "$here/site" ]; then
    rm -rf "$here/site.new"
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$here/site.new" "$here"/wheels/*.whl
    mv "$here/site.new" "$here/site"
fi
export PYTHONPATH="$root:$root/aggregator:$root/silo-agent:$root/operator:$here/site"
cd "$root"
exec "$python" -m benchmarks.gpu --bundle "$here" --data "$here/data" "$@"
"""


def make(into: Path, data: Path, python: str) -> int:
    """Write the folder anew; its size in bytes.

    :param data: folder with CIFAR-10, in one of the layouts of docs/benchmarks.md.
    :param python: version of the machine's Python, such as 3.12.
    :raises SystemExit: the images are not there, or it is larger than it may be.
    """
    shutil.rmtree(into, ignore_errors=True)
    (into / "wheels").mkdir(parents=True)
    (into / "data").mkdir()
    copy_images(data, into / "data" / "cifar10-jpeg.npz")
    needed = resolved_versions(REQUIRED_PACKAGES, python)
    for name in resolved_versions(PREINSTALLED_PACKAGES, python):
        needed.pop(name, None)
    download({name: version for name, version in needed.items() if version}, python, into / "wheels")
    _run(
        [
            sys.executable,
            "-m",
            "uv",
            "build",
            "--quiet",
            "--wheel",
            "--out-dir",
            str(into / "wheels"),
            str(ROOT),
        ]
    )
    (into / "wheels" / ".gitignore").unlink(missing_ok=True)
    (into / "commit").write_text(f"{revision(ROOT)} {digest_of_sources()}\n", encoding="utf-8")
    script = into / "run"
    script.write_text(RUN, encoding="utf-8")
    script.chmod(0o755)
    return checked_size(into)


def digest_of_sources(root: Path = ROOT) -> str:
    """SHA-256 of all Python files that a run may import, by name and content."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            content = path.read_bytes()
            found.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return found.hexdigest()


def stated_commit(bundle: Path | None) -> str | None:
    """The commit that a bundle was made at, `-dirty` where this copy has other sources; None where git knows better."""
    if bundle is None or revision(ROOT) != "unknown":
        return None
    commit, sources = (bundle / "commit").read_text(encoding="utf-8").split()
    return commit if sources == digest_of_sources() else f"{commit.removesuffix('-dirty')}-dirty"


def copy_images(data: Path, path: Path) -> None:
    """CIFAR-10 as compressed JPEG files: those that are JPEG already stay what they are.

    :raises SystemExit: they are not there.
    """
    ready = data / "cifar10-jpeg.npz"
    if ready.is_file():
        with np.load(ready, allow_pickle=False) as arrays:
            np.savez_compressed(path, allow_pickle=False, **arrays)
        return
    try:
        write_jpeg(path, {split: cifar10(data, split) for split in ("train", "test")})
    except FileNotFoundError as error:
        raise SystemExit(
            f"--data: {str(data)!r}: {error}; name the folder with CIFAR-10, see docs/benchmarks.md"
        ) from None


def resolved_versions(requirements: Iterable[str], python: str) -> dict[str, str]:
    """Name -> version of the packages that these need there, as the tests ran with them; a local package has none."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-annotate", "--no-header"]
    command += ["--python-version", python, "--python-platform", "linux", "--constraint", "constraints.txt"]
    told = subprocess.run(command, input="\n".join(requirements), cwd=ROOT, capture_output=True, text=True)
    if told.returncode != 0:
        raise SystemExit(told.stderr.strip())
    return pinned_versions(told.stdout)


def pinned_versions(text: str) -> dict[str, str]:
    """What lines of the form `name==version` say; other lines name a place instead of a version."""
    lines = [line.partition(";")[0].strip() for line in text.splitlines()]
    return {name: version for name, found, version in (line.partition("==") for line in lines) if found}


def download(packages: dict[str, str], python: str, into: Path) -> None:
    """Wheels of these versions for Linux on x86-64.

    :raises SystemExit: one is not there.
    """
    platforms = [word for name in MANYLINUX for word in ("--platform", f"{name}_x86_64")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms]
    _run([*command, "--dest", str(into), *(f"{name}=={version}" for name, version in packages.items())])


def checked_size(folder: Path, most: int = MOST_BYTES) -> int:
    """Bytes of all files.

    :raises SystemExit: they are more than it may be, with the largest.
    """
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > most:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:5]
        named = ", ".join(f"{path.name} ({sizes[path] / 1e6:.0f} MB)" for path in largest)
        raise SystemExit(
            f"{folder}: {total / 1e6:.0f} MB, more than {most / 1e6:.0f}; the largest are {named}"
        )
    return total


def _run(command: list[str]) -> None:
    if code := subprocess.run(command, cwd=ROOT).returncode:
        raise SystemExit(f"{' '.join(command[2:4])} ended with exit code {code}")


def main() -> None:
    """Write the folder and say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "gpu", metavar="FOLDER")
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="with CIFAR-10")
    parser.add_argument("--python", default="3.11", metavar="VERSION", help="of the machine; 3.11 by default")
    args = parser.parse_args()
    size = make(args.into.resolve(), args.data.resolve(), args.python)
    print(f"{args.into}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
