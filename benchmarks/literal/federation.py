"""What a job and a literal loop share: network, initial weights, the silos' examples and batches, and the test set.

All of it is the job's own, so that a loop differs from the job in nothing but the method's arithmetic. Nothing of
`fedsilo.methods` that computes is used. A model is one vector w, all of its tensors one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.tables.reference import test_set_of
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.learning.devices import prepare_torch
from fedsilo.learning.examples import Examples, batches
from fedsilo.learning.models import Model, as_model, build_model, initial_model
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import learning_rate
from fedsilo.methods.schedule import is_evaluated, participants
from fedsilo.simulation.data import SharedData
from fedsilo.transforms.plan import JobPlan

Batch = tuple[Tensor, Tensor]
"""Features (n, *input shape), and classes (n,)."""


@dataclass(frozen=True)
class Federation:
    """One job's silos, with everything in one precision.

    :param initial: w before round 1, the job's.
    :param silos: each silo's training examples, by reference and in the job's order.
    """

    spec: FederatedJobSpec
    network: Model
    initial: Tensor
    silos: Mapping[str, Batch]
    test: Batch

    @classmethod
    def of(cls, manifest: JobManifest, dtype: torch.dtype = torch.float32) -> Federation:
        """The federation that a job's manifest describes, with its network, data and test set.

        :raises ValueError: a network with buffers, which are no part of w.
        """
        spec = manifest.job.spec
        prepare_torch(spec.training.threads, spec.training.repeatable)
        network = as_model(build_model(spec.model, spec.data, seed=0), "the job's model is").to(dtype)
        if any(True for _ in network.buffers()):
            raise ValueError(
                f"spec.model.name: {spec.model.name!r} has buffers; use a network without BatchNorm"
            )
        data = SharedData(spec, Path.cwd())
        silos = {str(silo): _whole_batch(data.examples(silo)[0], dtype) for silo in manifest.silos}
        test = _whole_batch(test_set_of(manifest), dtype)
        initial = vector(
            {name: array.astype(np.float64) for name, array in initial_model(spec).items()}, network
        )
        return cls(spec, network, initial, silos, test)

    @property
    def rounds(self) -> int:
        """Rounds of the job."""
        return self.spec.training.rounds

    @property
    def dtype(self) -> torch.dtype:
        """Precision of all numbers."""
        return self.initial.dtype

    def is_scored(self, round: int) -> bool:
        """Whether the job scores its model after a round."""
        return is_evaluated(self.spec, round, self.rounds)

    def rate(self, round: int) -> float:
        """eta of a round, from 1."""
        return learning_rate(self.spec.training, round, self.rounds)

    def drawn_silos(self, round: int) -> tuple[str, ...]:
        """The silos of a round."""
        exchanges = JobPlan.of(self.spec).exchanges
        exchange = next(each for each in exchanges if each.round == round and each.phase.step == "train")
        return participants(self.spec, exchange, list(self.silos))

    def steps(self, silo: str) -> int:
        """Local steps tau of a silo in a round."""
        training, size = self.spec.training, len(self.silos[silo][1])
        passes = -(-size // training.batch_size) * training.local_epochs
        return training.local_steps or max(passes, training.min_steps)

    def batches(self, silo: str, round: int, steps: int) -> Iterator[Batch]:
        """The first batches that the job's silo learns from in a round."""
        features, labels = self.silos[silo]
        seed = self.seed(silo, "batches", "train", round)
        for index in islice(batches(len(labels), self.spec.training.batch_size, seed), steps):
            yield features[index], labels[index]

    def seed(self, *purpose: str | int) -> int:
        """The job's seed of a purpose."""
        return derive_seed(self.spec.training.seed, *purpose)

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        """phi(x), (n, *input shape) -> (n, feature)."""
        found: Tensor = functional_call(self.network.encoder, _subtree("encoder.", self.tensors(w)), (x,))
        return found

    def class_logits(self, w: Tensor, features: Tensor) -> Tensor:
        """(n, feature) -> logits (n, classes)."""
        found: Tensor = functional_call(
            self.network.classifier, _subtree("classifier.", self.tensors(w)), (features,)
        )
        return found

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """(n, *input shape) -> logits (n, classes)."""
        return self.class_logits(w, self.features(w, x))

    def accuracy(self, w: Tensor) -> float:
        """Accuracy of the model on the test set."""
        features, labels = self.test
        with torch.no_grad():
            return float((self.logits(w, features).argmax(dim=1) == labels).double().mean())

    def tensors(self, w: Tensor) -> dict[str, Tensor]:
        """The model's tensors as parts of w."""
        return tensors(w, self.network)


def vector(tree: Mapping[str, np.ndarray], module: nn.Module) -> Tensor:
    """Arrays of a module's parameters as one vector, in the module's precision."""
    parameters = dict(module.named_parameters())
    dtype = next(iter(parameters.values())).dtype
    return torch.cat([torch.tensor(tree[name], dtype=dtype).flatten() for name in parameters])


def tensors(w: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """A module's parameters as parts of one vector."""
    parameters = dict(module.named_parameters())
    parts = torch.split(w, [parameter.numel() for parameter in parameters.values()])
    return {
        name: part.view_as(parameter)
        for part, (name, parameter) in zip(parts, parameters.items(), strict=True)
    }


def gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Gradient of a function of one vector."""
    at = at.detach().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def _subtree(prefix: str, tree: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): part for name, part in tree.items() if name.startswith(prefix)}


def _whole_batch(examples: Examples, dtype: torch.dtype) -> Batch:
    features, labels = examples.batch(torch.arange(len(examples)))
    return features.to(dtype), labels
