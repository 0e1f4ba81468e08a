"""Cases of the aggregator's work: a mean of updates, which is the processor's, and scoring, which is the device's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from benchmarks.gpu.cases import Case, Figures, Setting
from benchmarks.gpu.clock import now
from benchmarks.training import examples, job_of
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_module
from fedsilo.methods.state import Tree
from fedsilo.updates.held import InMemoryUpdates

SILOS = 8
TENSORS = 10


@dataclass(frozen=True)
class Update:
    """Update of one silo: a model and what it was trained on."""

    samples: int
    blocks: dict[str, Tree]
    metrics: dict[str, float] = field(default_factory=dict)


def cases(setting: Setting) -> Iterator[Case]:
    """The mean, then scoring by network."""
    yield Case(f"mean of {SILOS} updates", partial(mean, setting))
    for network in ("lenet",) if setting.size == "reduced" else ("lenet", "resnet20"):
        yield Case(f"scoring with {network}", partial(scoring, setting, network))


def mean(setting: Setting) -> Figures:
    """Seconds of the engine's weighted mean, and of one on the device with the way there and back.

    :raises AssertionError: they differ by more than rounding.
    """
    megabytes = int(setting.of(100, 100, 1))
    random = np.random.default_rng(0)
    trees = [
        {f"t{number}": random.standard_normal(megabytes * 25_000, np.float32) for number in range(TENSORS)}
        for _ in range(SILOS)
    ]
    updates = InMemoryUpdates({f"s{i}": Update(1, {"model": tree}) for i, tree in enumerate(trees)})
    weights = dict.fromkeys(updates.silos, 1 / SILOS)

    def on_device() -> Tree:
        total: dict[str, torch.Tensor] = {}
        for tree in trees:
            for name, array in tree.items():
                part = torch.from_numpy(array).to(setting.device) * (1 / SILOS)
                total[name] = part if name not in total else total[name].add_(part)
        return {name: tensor.cpu().numpy() for name, tensor in total.items()}

    ours, there = updates.weighted_sum("model", weights), on_device()
    worst = max(float(np.abs(ours[name] - there[name]).max()) for name in ours)
    assert worst < 1e-5, f"the means differ by {worst:.1e}"
    processor = seconds_of(lambda: updates.weighted_sum("model", weights), setting)
    device = seconds_of(on_device, setting)
    return {
        "MB": megabytes,
        "processor, s": processor,
        "device, s": device,
        "processor over device": processor / device,
    }


def scoring(setting: Setting, network: str) -> Figures:
    """Examples per second of a test set on the device, and of a few of them on one core of the processor."""
    spec = job_of(network, setting.device, "float32", 64)
    rates = []
    for device, count in (
        ("cpu", int(setting.of(512, 256, 64))),
        (setting.device, int(setting.of(10_000, 5_000, 64))),
    ):
        features, labels = examples(count, "images")
        model = build_module(spec.model, spec.data, 0, spec.task).to(device)
        test = Examples.from_arrays(features, labels, device)
        rates.append(count / seconds_of(partial(evaluate, model, test), setting))
    return {
        "processor, examples/s": rates[0],
        "device, examples/s": rates[1],
        "device over processor": rates[1] / rates[0],
    }


def seconds_of(run: Callable[[], object], setting: Setting) -> float:
    """The median of three, after one that warms up."""
    found = []
    for _ in range(int(setting.of(4, 3, 2))):
        began = now(setting.device)
        run()
        found.append(now(setting.device) - began)
    return statistics.median(found[1:])
