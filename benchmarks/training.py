"""A silo's training beside a plain PyTorch loop of the same network, examples, batches and optimiser.

    python -m benchmarks.training                                        # every built-in network, on the CPU
    python -m benchmarks.training --device cuda --precision bfloat16
    python -m benchmarks.training --networks lenet cct --pairs 9 --from-file

fedsilo's side is FedAvg's step as a trainer runs it (`fedsilo.silo.runner`), with a silo's dataset; the loop is below.
Both begin with the same weights and must end with the same bytes. Images of 3 x 32 x 32 bytes in ten classes (`unet`:
in four classes of pixels), `transformer` 64 tokens of 256; SGD with momentum and weight decay, batches of 32.

With --from-file the features stay in a file: the loop indexes the memory-mapped array, fedsilo reads ahead.

The ratio is the loop's time over fedsilo's, the median over pairs that take turns at being first; seconds are those of
the processor, so that other work on the machine counts for little, and on a GPU those that pass. `task` is what running
a task takes beside the steps: a network, its weights in, its weights out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional

from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.learning import training
from fedsilo.learning.catalogue import ARCHITECTURES
from fedsilo.learning.devices import pick_device, prepare_torch
from fedsilo.learning.models import build_module, initial_model, load_tree, to_tree
from fedsilo.methods import registry
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.silo.context import LocalContext, open_context
from fedsilo.silo.runner import TaskRunner

TOKENS, VOCABULARY, CLASSES, PIXEL_CLASSES = 64, 256, 10, 4
MOST_STEPS = 200
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""`spec.training.precision` -> what forward passes are computed in under autocast."""


@dataclass(frozen=True)
class TrainingMeasurement:
    """Time of one training and the weights that came out.

    :param seconds: of the steps.
    :param beside: of the rest of the task.
    """

    seconds: float
    beside: float
    weights: Tree


@dataclass(frozen=True)
class Comparison:
    """All pairs of one network.

    :param steps: of each training.
    :param pairs: (loop, fedsilo).
    """

    network: str
    parameters: int
    batch: int
    steps: int
    pairs: tuple[tuple[TrainingMeasurement, TrainingMeasurement], ...]

    @property
    def ratio(self) -> float:
        """Fedsilo's samples per second over the loop's, the median over the pairs."""
        return statistics.median(loop.seconds / ours.seconds for loop, ours in self.pairs)

    def row(self) -> str:
        """A line of the table."""
        loop, ours = (statistics.median(pair[side].seconds for pair in self.pairs) for side in (0, 1))
        beside = statistics.median(pair[1].beside for pair in self.pairs)
        step = f"{1000 * loop / self.steps:.2f} | {1000 * ours / self.steps:.2f}"
        rate = f"{self.batch * self.steps / ours:.0f}"
        cells = (f"`{self.network}`", f"{self.parameters:,}", step, rate, f"**{self.ratio:.3f}**")
        return f"| {' | '.join(cells)} | {1000 * beside:.1f} |"


def examples(samples: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Random examples, a loader that manifests name."""
    rng = np.random.default_rng(0)
    if kind == "tokens":
        tokens = rng.integers(0, VOCABULARY, (samples, TOKENS + 1), dtype=np.int64)
        return tokens[:, :-1], tokens[:, 1:]
    images = rng.integers(0, 256, (samples, 3, 32, 32), dtype=np.uint8)
    if kind == "masks":
        return images, rng.integers(0, PIXEL_CLASSES, (samples, 32, 32), dtype=np.int64)
    return images, rng.integers(0, CLASSES, samples, dtype=np.int64)


def job_of(network: str, device: str, precision: str, batch: int) -> FederatedJobSpec:
    """A job of one silo that trains the network."""
    tasks = ARCHITECTURES[network].tasks
    task: dict[str, Any] = {}
    data: dict[str, Any] = {"classes": CLASSES, "inputShape": [3, 32, 32]}
    if "language" in tasks:
        task = {"task": {"name": "language", "config": {"vocabulary": VOCABULARY}}}
        data = {"inputShape": [TOKENS]}
    elif "segmentation" in tasks:
        task, data = {"task": {"name": "segmentation"}}, {**data, "classes": PIXEL_CLASSES}
    optimizer = {"learningRate": 0.001, "momentum": 0.9, "weightDecay": 0.0001}
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": network},
        **task,
        "data": {"dataset": "random", "validationFraction": 0, **data},
        "training": {
            "rounds": 1,
            "device": device,
            "precision": precision,
            "batchSize": batch,
            "optimizer": optimizer,
        },
        "silos": {"refs": [{"namespace": "silos", "name": "s0"}]},
    }
    metadata = {"namespace": "federation", "name": "training"}
    document = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": metadata,
        "spec": spec,
    }
    return FederatedJob.model_validate(document).spec


def silo_of(network: str, samples: int) -> Silo:
    """The silo, with so many examples."""
    tasks = ARCHITECTURES[network].tasks
    kind = "tokens" if "language" in tasks else "masks" if "segmentation" in tasks else "images"
    dataset = {
        "name": "random",
        "loader": "python:benchmarks.training:examples",
        "config": {"samples": samples, "kind": kind},
    }
    metadata = {"namespace": "silos", "name": "s0"}
    document = {"apiVersion": "fedsilo.io/v1alpha1", "kind": "Silo", "metadata": metadata}
    policy = {"minSamplesPerUpdate": 1}  # made-up examples, of which two batches may be all
    return Silo.model_validate({**document, "spec": {"datasets": [dataset], "policy": policy}})


def train_plain(context: LocalContext, tree: Tree, clock: Callable[[], float]) -> TrainingMeasurement:
    """Train with a hand-written loop in plain PyTorch."""
    spec, plan, data = context.spec, context.local_training(task_of(tree)), context.train
    device, half = data.labels.device, HALVES.get(plan.precision)
    network: nn.Module = build_module(spec.model, spec.data, 0, spec.task)
    load_tree(network, tree)
    network.to(device)
    features, labels = (
        data.pool.array if isinstance(data.pool, MappedFeatures) else data.features,
        data.labels,
    )
    torch.manual_seed(plan.seed)
    began = clock()
    optimizer = torch.optim.SGD(
        network.parameters(), plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay
    )
    scaler = GradScaler(device.type, enabled=half == torch.float16)
    network.train()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(plan.seed)).to(device)
    for index in torch.split(order, plan.batch_size):
        x, y = _features(features, index), labels[index]
        if x.dtype == torch.uint8:
            x = x.float() / 255
        optimizer.zero_grad()
        with torch.autocast(device.type, half, enabled=half is not None):
            loss = cross_entropy(network(x), y)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
    seconds = clock() - began
    return TrainingMeasurement(seconds, 0.0, to_tree(network))


def _features(features: Tensor | np.ndarray, index: Tensor) -> Tensor:
    if isinstance(features, Tensor):
        return features[index]
    return torch.from_numpy(features[index.cpu().numpy()]).to(index.device)


@dataclass(frozen=True)
class MappedFeatures:
    """Features that stay in a file of raw numbers: `fedsilo.learning.examples.StoredFeatures`."""

    array: np.ndarray

    def __len__(self) -> int:
        return len(self.array)

    @property
    def ndim(self) -> int:
        """Number of dimensions of the features."""
        return self.array.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the features, (n, *input shape)."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.array.dtype

    def read(self, index: np.ndarray) -> np.ndarray:
        """The features at these places, in their order."""
        return np.ascontiguousarray(self.array[index])


def from_file(context: LocalContext, folder: str) -> LocalContext:
    """A context of the same examples, whose features stay in a file of the folder."""
    features, path = context.train.features.cpu().numpy(), Path(folder) / "features"
    features.tofile(path)
    mapped = np.memmap(path, features.dtype, "r", shape=features.shape)
    return replace(context, train=replace(context.train, pool=MappedFeatures(mapped), rows=None))


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the examples, the pixels or the tokens."""
    if outputs.ndim == 2:
        return functional.cross_entropy(outputs, targets)
    logits = outputs.movedim(-1, 1) if outputs.ndim == 3 else outputs
    # Of several places to an example `cross_entropy` has no deterministic form on a GPU.
    by_place = functional.log_softmax(logits, dim=1, dtype=torch.float32).movedim(1, -1).flatten(0, -2)
    return functional.nll_loss(by_place, targets.flatten())


def task_of(tree: Tree) -> SiloTask:
    """The training task of FedAvg, whose only tree is the model."""
    return SiloTask("train", "train", 1, 1, 1, trees={"model": tree}, settings={})


def fedsilo(context: LocalContext, tree: Tree, clock: Callable[[], float]) -> TrainingMeasurement:
    """FedAvg's step, as a trainer runs it."""
    runner = TaskRunner(registry.bind(context.spec), context)
    steps: list[float] = []
    fit = training.fit

    def timed_fit(*args: Any, **options: Any) -> training.TrainingReport:
        began = clock()
        report = fit(*args, **options)
        steps.append(clock() - began)
        return report

    training.fit = timed_fit
    try:
        began = clock()
        reply = runner.run(task_of(tree), State())
        whole = clock() - began
    finally:
        training.fit = fit
    return TrainingMeasurement(steps[0], whole - steps[0], dict(reply.tensors))


def compare(
    network: str,
    device: str,
    precision: str,
    batch: int,
    pairs: int,
    seconds: float,
    steps: int = 0,
    stored: bool = False,
) -> Comparison:
    """Train in pairs, after one that warms up.

    :param seconds: about how long one training lasts.
    :param steps: of one training; 0: as many as that takes.
    :param stored: features stay in a file, and are read batch by batch.
    :raises SystemExit: the two ways end with different weights.
    """
    spec = job_of(network, device, precision, batch)
    clock, tree = _clock(pick_device(device)), initial_model(spec)
    if not steps:
        probe = open_context(spec, silo_of(network, 2 * batch), Path.cwd())
        times = [train_plain(probe, tree, clock).seconds / 2 for _ in range(2)]
        steps = min(max(round(seconds / times[1]), 3), MOST_STEPS)
    context = open_context(spec, silo_of(network, steps * batch), Path.cwd())
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as folder:
        measured = _pairs(network, from_file(context, folder) if stored else context, tree, clock, pairs)
    parameters = sum(array.size for array in tree.values())
    return Comparison(network, parameters, batch, steps, tuple(measured[1:]))


def _pairs(
    network: str, context: LocalContext, tree: Tree, clock: Callable[[], float], pairs: int
) -> list[tuple[TrainingMeasurement, TrainingMeasurement]]:
    measured = []
    for number in range(pairs + 1):
        if number % 2:
            ours = fedsilo(context, tree, clock)
            loop = train_plain(context, tree, clock)
        else:
            loop = train_plain(context, tree, clock)
            ours = fedsilo(context, tree, clock)
        different = [name for name in tree if ours.weights[name].tobytes() != loop.weights[name].tobytes()]
        if different or list(ours.weights) != list(loop.weights):
            raise SystemExit(f"{network}: the loop and fedsilo end with different weights: {different[:3]}")
        # Only their times are of interest from here on.
        measured.append((replace(loop, weights={}), replace(ours, weights={})))
    return measured


def _clock(device: torch.device) -> Callable[[], float]:
    if device.type != "cuda":
        return time.process_time

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def main(argv: Sequence[str] | None = None) -> None:
    """Measure each network and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", *HALVES), default="float32")
    parser.add_argument("--from-file", action="store_true", help="features stay in a file")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long one training lasts")
    args = parser.parse_args(argv)
    prepare_torch(1, deterministic=True)
    print("| network | numbers | loop, ms/step | fedsilo, ms/step | samples/s | ratio | task, ms |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for network in args.networks:
        found = compare(
            network,
            args.device,
            args.precision,
            args.batch,
            args.pairs,
            args.seconds,
            stored=args.from_file,
        )
        print(found.row(), flush=True)


if __name__ == "__main__":
    main()
