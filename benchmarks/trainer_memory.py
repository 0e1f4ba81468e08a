"""The memory of a silo's trainer whose data are larger than it: a whole `fedsilo run`, seen from outside.

    python -m benchmarks.trainer_memory

Each kind of data is written on the fly: `npy` is a file of float32 with a hole, `imagefolder` links to one PNG file of
2000 x 2000 pixels, `parquet` is one row group after another of the same rows. One silo trains for one round with a
small network and scores its validation examples. The peak is VmHWM of the process `fedsilo-trainer`, read from /proc
while it runs; the memory that it shares with the process it was forked from counts in full.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image
from torch import nn

from fedsilo.learning.models import Model

CLASSES = 4
POLL_SECONDS = 0.05
COLUMNS = 2000
GROUP_ROWS = 1 << 12


def network(input_shape: tuple[int, ...], classes: int) -> Model:
    """Images averaged by blocks or the columns of a table, and two layers: reading is the work."""
    width = math.prod(input_shape)
    blocks: list[nn.Module] = []
    if len(input_shape) == 3:
        block = input_shape[1] // 8
        blocks, width = [nn.AvgPool2d(block)], input_shape[0] * 8 * 8
    return Model(
        nn.Sequential(*blocks, nn.Flatten(), nn.Linear(width, 32), nn.ReLU()), nn.Linear(32, classes)
    )


@dataclass(frozen=True)
class WrittenData:
    """Data of one kind.

    :param examples: how many there are.
    """

    examples: int
    shape: list[int]
    config: dict[str, Any]


def write_npy(folder: Path, size: int) -> WrittenData:
    """A file with a hole, whose numbers are all zero."""
    shape = [3, 224, 224]
    count = -(-size // (4 * math.prod(shape)))
    with (folder / "images.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * count * math.prod(shape))
    np.save(folder / "labels.npy", np.arange(count) % CLASSES)
    return WrittenData(count, shape, {"features": "images.npy", "labels": "labels.npy"})


def write_imagefolder(folder: Path, size: int) -> WrittenData:
    """Names of one and the same file."""
    side = 2000
    count = -(-size // (3 * side * side))
    Image.new("RGB", (side, side), (10, 20, 30)).save(folder / "one.png")
    for number in range(count):
        place = folder / "images" / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        os.link(folder / "one.png", place / f"{number}.png")
    return WrittenData(count, [3, side, side], {"path": "images"})


def write_parquet(folder: Path, size: int) -> WrittenData:
    """A table that takes as many bytes once its numbers are float32."""
    import pyarrow
    import pyarrow.parquet

    groups = -(-size // (4 * COLUMNS * GROUP_ROWS))
    numbers = np.random.RandomState(0).randn(GROUP_ROWS).astype(np.float32)
    columns = {f"column{place}": np.roll(numbers, place) for place in range(COLUMNS)}
    rows = pyarrow.table(columns | {"target": np.arange(GROUP_ROWS) % CLASSES})
    with pyarrow.parquet.ParquetWriter(folder / "table.parquet", rows.schema, use_dictionary=False) as writer:
        for _ in range(groups):
            writer.write_table(rows)
    return WrittenData(groups * GROUP_ROWS, [COLUMNS], {"path": "table.parquet", "target": "target"})


KINDS: dict[str, Callable[[Path, int], WrittenData]] = {
    "npy": write_npy,
    "imagefolder": write_imagefolder,
    "parquet": write_parquet,
}


def manifest(loader: str, written: WrittenData, batch: int) -> str:
    """One job, and its silo."""
    job = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"namespace": "research", "name": "large"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": "python:benchmarks.trainer_memory:network"},
            "data": {
                "dataset": "large",
                "classes": CLASSES,
                "inputShape": written.shape,
                "validationFraction": 0.02,
            },
            "training": {"rounds": 1, "batchSize": batch, "optimizer": {"learningRate": 0.01}},
            "participation": {"roundDeadline": "2h"},
            "silos": {"refs": [{"namespace": "one", "name": "one"}]},
        },
    }
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": "one", "name": "one"},
        "spec": {"datasets": [{"name": "large", "loader": loader, "config": written.config}]},
    }
    return yaml.safe_dump_all([job, silo])


def run(folder: Path) -> tuple[float, int]:
    """Seconds of the run, and the trainer's peak in MB.

    :raises SystemExit: when the run fails.
    """
    began, peak = time.perf_counter(), 0
    command = [sys.executable, "-m", "fedsilo.cli.main", "run", "-f", str(folder / "job.yaml"), "--json"]
    process = subprocess.Popen([*command, "--workdir", str(folder / "run")], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max([peak, *map(_peak, _trainers(folder))])
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - began, peak


def _trainers(folder: Path) -> list[Path]:
    """Processes whose command line is a trainer's and names this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if b"fedsilo_agent.trainer" in line and os.fsencode(folder) in line:
            found.append(process)
    return found


def _peak(process: Path) -> int:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1000 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    """Print a row per kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=20_000_000_000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    args = parser.parse_args()
    print("| loader | data, GB | examples | run, s | trainer's peak, MB |\n|---|---|---|---|---|", flush=True)
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            written = KINDS[kind](folder, args.bytes)
            (folder / "job.yaml").write_text(manifest(kind, written, args.batch))
            seconds, peak = run(folder)
        size = f"{args.bytes / 1e9:.1f}"
        print(f"| `{kind}` | {size} | {written.examples} | {seconds:.0f} | {peak} |", flush=True)


if __name__ == "__main__":
    main()
