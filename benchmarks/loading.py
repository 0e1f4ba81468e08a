"""Reading data while training: its speed beside a plain loop, and its memory with 20 GB.

    python -m benchmarks.loading

Speed: one pass over a folder of JPEG files with a small network, so that decoding is the work, on two threads of
PyTorch. `plain` is torchvision's ImageFolder and ToTensor, a DataLoader and torch.optim.SGD; ours is `fit` on the
examples of the loader `imagefolder`, which stay in their files. Passes alternate, and the ratio is that of the medians.
Memory: one pass over a `.npy` file of 20 GB, a file with a hole, as a silo's trainer reads it; the peak is VmHWM of the
process that loads, trains and evaluates.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.learning.devices import prepare_torch
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.models import Model
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.silo.examples import load_examples

CLASSES = 4
SIDE = 224
BATCH_EXAMPLES = 32
THREADS = 2
PASSES = 5
LARGE_BYTES = 20_000_000_000


def network() -> Model:
    """Pixels averaged by blocks, and two layers: far less work than decoding."""
    encoder = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * 14 * 14, 64), nn.ReLU())
    return Model(encoder, nn.Linear(64, CLASSES))


def documents(loader: str, config: dict[str, object]) -> tuple[FederatedJobSpec, Silo]:
    """A job, and a silo with such a dataset."""
    job = FederatedJobSpec.model_validate(
        {
            "method": {"name": "fedavg"},
            "model": {"name": "mlp"},
            "data": {
                "dataset": "images",
                "classes": CLASSES,
                "inputShape": [3, SIDE, SIDE],
                "validationFraction": 0.01,
            },
            "training": {
                "rounds": 1,
                "batchSize": BATCH_EXAMPLES,
                "optimizer": {"learningRate": 0.01},
                "device": "cpu",
            },
            "silos": {"refs": [{"namespace": "a", "name": "a"}]},
        }
    )
    silo = Silo.model_validate(
        {
            "metadata": {"namespace": "a", "name": "a"},
            "spec": {"datasets": [{"name": "images", "loader": loader, "config": config}]},
        }
    )
    return job, silo


def write_images(folder: Path, count: int) -> None:
    """JPEG files of smooth noise, which decodes as photographs do."""
    random = np.random.RandomState(0)
    for number in range(count):
        coarse = Image.fromarray(random.randint(0, 256, (SIDE // 8, SIDE // 8, 3)).astype(np.uint8))
        place = folder / f"class{number % CLASSES}"
        place.mkdir(exist_ok=True)
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(place / f"{number}.jpg", quality=90)


def plain_loader_pass(folder: Path, workers: int) -> Callable[[], None]:
    """A pass of the loop that everybody writes."""
    dataset = torchvision.datasets.ImageFolder(str(folder), torchvision.transforms.ToTensor())
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=BATCH_EXAMPLES, shuffle=True, num_workers=workers
    )

    def run() -> None:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for features, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run


def training_pass(folder: Path) -> Callable[[], None]:
    """A pass of local training."""
    job, silo = documents("imagefolder", {"path": str(folder), "inMemory": False})
    train, _ = load_examples(job, silo, folder)
    return lambda: _fit(train)


def _fit(train: object) -> None:
    fit(network(), train, LocalTraining(lr=0.01, batch_size=BATCH_EXAMPLES))  # type: ignore[arg-type]


def speed(count: int) -> None:
    """Print the table of passes per kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder, count)
        kinds = {
            "plain, in the training process (`num_workers=0`)": plain_loader_pass(folder, 0),
            f"plain, {THREADS} processes (`num_workers={THREADS}`)": plain_loader_pass(folder, THREADS),
            "fedsilo": training_pass(folder),
        }
        seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(PASSES):
            for kind, run in kinds.items():
                began = time.perf_counter()
                run()
                seconds[kind].append(time.perf_counter() - began)
    medians = {kind: statistics.median(found) for kind, found in seconds.items()}
    own = medians["fedsilo"]
    print(f"| {count} images, {PASSES} passes | seconds | images/s | fedsilo's speed beside it |")
    print("|---|---|---|---|")
    for kind, median in medians.items():
        print(f"| {kind} | {median:.2f} | {count / median:.0f} | {median / own:.2f} |")


def memory(size: int) -> None:
    """Print the table of one pass over so many bytes, in this process."""
    item = 3 * SIDE * SIDE
    count = -(-size // item)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "images.npy").open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (count, 3, SIDE, SIDE)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + count * item)
        np.save(folder / "labels.npy", np.arange(count) % CLASSES)
        job, silo = documents("npy", {"features": "images.npy", "labels": "labels.npy"})
        idle = _peak()
        began = time.perf_counter()
        train, validation = load_examples(job, silo, folder)
        loaded = time.perf_counter() - began
        model = network()
        fit(model, train, LocalTraining(lr=0.01, batch_size=BATCH_EXAMPLES))
        evaluate(model, validation)
        seconds = time.perf_counter() - began
    print("| data, GB | examples | load, s | pass, s | peak before, MB | peak, MB |")
    print("|---|---|---|---|---|---|")
    print(f"| {size / 1e9:.1f} | {count} | {loaded:.1f} | {seconds:.0f} | {idle} | {_peak()} |")


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1000


def main() -> None:
    """Measure speed and memory, the memory in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=LARGE_BYTES)
    parser.add_argument("--only", choices=["speed", "memory"])
    args = parser.parse_args()
    prepare_torch(THREADS)
    if args.only == "memory":
        memory(args.bytes)
    elif args.only == "speed":
        speed(args.images)
    else:
        for part in ("speed", "memory"):
            arguments = ["--images", str(args.images), "--bytes", str(args.bytes), "--only", part]
            subprocess.run(
                [sys.executable, "-m", "benchmarks.loading", *arguments], check=True, env=os.environ
            )
            print()


if __name__ == "__main__":
    main()
