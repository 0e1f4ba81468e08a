"""Federated averaging by a loop that is tuned: nothing is imported but PyTorch and NumPy, and nothing is done twice.

Data are in memory once and taken by index, an epoch's at a time; two processes, forked after the imports, have the
weights in shared memory as one vector; the optimiser is five lines, since `torch.optim` imports PyTorch's compiler.
What a loop of one's own would have in its source is given: each client's examples, the clients of each round, seeds.

    python -m benchmarks.tuned plan.npz model.npz
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import lenet5, perceptron


class Loop:
    """One process's network, with data and plan that all have.

    :param plan: as `benchmarks.simulation` writes it.
    """

    def __init__(self, plan: dict[str, Any], parts: list[Tensor], features: Tensor, labels: Tensor) -> None:
        self.plan, self.parts, self.features, self.labels = plan, parts, features, labels
        torch.manual_seed(plan["seed"])
        shape = tuple(features.shape[1:])
        self.network: nn.Module = perceptron(shape, 10) if len(shape) == 1 else lenet5((1, *shape[-2:]), 10)
        self.names = list(self.network.state_dict())
        parameters = list(self.network.parameters())
        self.shapes = [tuple(parameter.shape) for parameter in parameters]
        self.weights = nn.utils.parameters_to_vector(parameters).detach()
        for parameter, view in zip(parameters, self.views(self.weights), strict=True):
            parameter.data = view
        self.parameters = parameters

    def views(self, vector: Tensor) -> list[Tensor]:
        """The tensors of a vector of all weights."""
        parts = torch.split(vector, [int(np.prod(shape)) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def train(self, client: int, seed: int) -> None:
        """One local epoch of SGD."""
        part, plan = self.parts[client], self.plan
        rows = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))]
        features = self.features[rows]
        if features.dtype == torch.uint8:
            features = features.float().div_(255)
        size, weights = plan["batch"], list[Tensor](self.parameters)
        batches = zip(torch.split(features, size), torch.split(self.labels[rows], size), strict=True)
        momenta: list[Tensor] = []
        for x, y in batches:
            loss = functional.cross_entropy(self.network(x), y)
            gradients = torch.autograd.grad(loss, self.parameters)
            with torch.no_grad():
                if momenta:
                    torch._foreach_mul_(momenta, plan["momentum"])
                    torch._foreach_add_(momenta, gradients)
                else:
                    momenta = [gradient.clone() for gradient in gradients]
                torch._foreach_add_(weights, momenta, alpha=-plan["lr"])


def work(loop: Loop, tasks: Any, done: Any, common: Tensor, found: Tensor) -> None:
    """Train clients as they come, until there are no more."""
    torch.set_num_threads(1)
    while task := tasks.get():
        place, client, seed = task
        loop.weights.copy_(common)
        loop.train(client, seed)
        found[place] = loop.weights
        done.put(place)


def main(plan_file: str, output: str) -> list[float]:
    """Train and write the model; the time at which each round was complete."""
    torch.set_num_threads(1)
    with np.load(plan_file) as given:
        plan: dict[str, Any] = json.loads(given["plan"].tobytes())
        bounds, places = given["bounds"], torch.from_numpy(given["places"])
    with np.load(plan["data"]) as data:
        features = torch.from_numpy(data[plan["features"]])
        labels = torch.from_numpy(data[plan["labels"]]).long()
    if features.ndim == 3:
        features = features.unsqueeze(1)
    loop = Loop(plan, [places[start:end] for start, end in bounds], features, labels)
    common = loop.weights.clone()
    found = torch.empty(max(map(len, plan["rounds"])), len(common))
    for tensor in (common, found):
        tensor.share_memory_()  # type: ignore[no-untyped-call]
    forking, times = multiprocessing.get_context("fork"), []
    tasks, done = forking.SimpleQueue(), forking.SimpleQueue()
    workers = [
        forking.Process(target=work, args=(loop, tasks, done, common, found)) for _ in range(plan["workers"])
    ]
    for worker in workers:
        worker.start()
    for clients in plan["rounds"]:
        sizes = [len(loop.parts[client]) for client, _ in clients]
        for place in sorted(range(len(clients)), key=lambda place: -sizes[place]):
            tasks.put((place, *clients[place]))
        for _ in clients:
            done.get()
        common.zero_()
        for place, size in enumerate(sizes):
            common.add_(found[place] * (size / sum(sizes)))
        times.append(time.time())
    arrays: dict[str, Any] = {
        name: view.numpy() for name, view in zip(loop.names, loop.views(common), strict=True)
    }
    np.savez(output, **arrays)
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join()
    return times


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
