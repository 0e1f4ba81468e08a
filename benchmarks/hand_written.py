"""Federated averaging as one would write it by hand in PyTorch, for comparison: no checks, nothing kept, one file."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import lenet5, perceptron
from fedsilo.api.loading import JobManifest
from fedsilo.data.loaders import load_whole
from fedsilo.data.partitions import partition
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.schedule import participants as draw
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import write_tensors

Weights = dict[str, Tensor]


class Clients:
    """Data, batches and rounds of the job, so that the loop has the same."""

    def __init__(self, manifest: JobManifest) -> None:
        spec = manifest.job.spec
        self.names = [str(silo) for silo in manifest.silos]
        self.training, self.shape = spec.training, spec.data.input_shape
        dataset = manifest.silos[0].spec.datasets[0]
        arrays = load_whole(dataset, spec.data, root=Path.cwd())
        assert dataset.partition is not None
        self.features, self.labels = torch.tensor(arrays.features), torch.tensor(arrays.labels)
        parts = partition(arrays.labels, dataset.partition)
        self.parts = {name: torch.tensor(part) for name, part in zip(self.names, parts, strict=True)}
        exchanges = JobPlan.of(spec).exchanges
        self.rounds = [draw(spec, exchange, self.names) for exchange in exchanges]

    @property
    def initial_seed(self) -> int:
        """Seed of the model's initial weights."""
        return derive_seed(self.training.seed, "model")

    def seed(self, name: str, round: int) -> int:
        """Seed of the order of a client's batches in one round."""
        return derive_seed(self.training.seed, name, "batches", "train", round)

    def initial_network(self) -> nn.Module:
        """The network with the job's initial weights."""
        torch.manual_seed(self.initial_seed)
        return perceptron(self.shape, 10) if len(self.shape) == 1 else lenet5(self.shape, 10)


def train(clients: Clients, model: nn.Module, name: str, round: int) -> None:
    """One local epoch of SGD."""
    part, plan = clients.parts[name], clients.training
    optimizer = torch.optim.SGD(
        model.parameters(), plan.optimizer.learning_rate, momentum=plan.optimizer.momentum
    )
    generator = torch.Generator().manual_seed(clients.seed(name, round))
    order = torch.randperm(len(part), generator=generator)
    for index in torch.split(order, plan.batch_size):
        rows = part[index]
        optimizer.zero_grad()
        features = clients.features[rows]
        x = features.float() / 255 if features.dtype == torch.uint8 else features
        loss = functional.cross_entropy(model(x), clients.labels[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def hand_written(clients: Clients, output: Path, workers: int) -> list[float]:
    """Train and write the model; the time at which each round was complete.

    :param workers: processes that share the clients' work; 0: this one does all of it.
    """
    torch.set_num_threads(1)
    model, times = clients.initial_network(), []
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pool = multiprocessing.get_context("fork").Pool(workers, _begin, (clients, model)) if workers else None
    for number, drawn in enumerate(clients.rounds, start=1):
        jobs = [(name, number, weights) for name in drawn]
        if pool is None:
            _begin(clients, model)
        trained = pool.imap(_train, jobs) if pool else map(_train, jobs)
        total = sum(len(clients.parts[name]) for name in drawn)
        mean = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        for name, found in zip(drawn, trained, strict=True):
            for key, tensor in found.items():
                mean[key] += tensor * (len(clients.parts[name]) / total)
        weights = mean
        times.append(time.time())
    if pool:
        pool.terminate()
    write_tensors({name: tensor.numpy() for name, tensor in weights.items()}, output)
    return times


_state: list[tuple[Clients, nn.Module]] = []


def _begin(clients: Clients, model: nn.Module) -> None:
    torch.set_num_threads(1)
    _state[:] = [(clients, model)]


def _train(job: tuple[str, int, Weights]) -> Weights:
    (clients, model), (name, round, weights) = _state[0], job
    model.load_state_dict(weights)
    train(clients, model, name, round)
    # Copies: what a pool sends is otherwise shared memory, which the next client's training changes.
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
