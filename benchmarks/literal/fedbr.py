"""FedBR, with the pseudo-data of its released code beside those that a job may have.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Algorithm 1. In the released code a pseudo-image is the mean of ten raw images of some silo, made in one place and
given to all of them; no job may do that, and nothing but this benchmark does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks.literal.federation import Federation, gradient, tensors

AVERAGED_IMAGES = 10
"""Images in a mean, in the released code."""

TEMPERATURE = 0.5
"""tau_1 and tau_2, in the released code."""


@dataclass(frozen=True)
class FedBRState:
    """What Algorithm 1 has before a round.

    :param w: phi and omega, extractor and classifier.
    :param theta: the projection.
    """

    w: Tensor
    theta: Tensor

    @property
    def model(self) -> Tensor:
        """Vector w of the common model."""
        return self.w

    @property
    def measures(self) -> dict[str, float]:
        """How long the model is."""
        return {"norm": float(self.w.norm())}


@dataclass(frozen=True)
class FedBR:
    """Algorithm 1, and what the experiments change in it.

    :param pseudo: lambda; with `contrast` 0 and this 0 it is FedAvg.
    :param contrast: mu.
    :param pseudo_data: own, of each silo's images; central, of all silos' images in one place.
    """

    pseudo: float = 1.0
    contrast: float = 0.5
    pseudo_data: Literal["own", "central"] = "own"

    def start(self, of: Federation) -> FedBRState:
        """The initial model, and a projection with PyTorch's initial weights."""
        with torch.random.fork_rng([]):
            torch.manual_seed(of.seed("literal projection"))
            layers = [part.detach().flatten() for part in projection(of.network.feature).parameters()]
        return FedBRState(of.initial, torch.cat(layers).to(of.dtype))

    def round(self, of: Federation, state: FedBRState, number: int) -> FedBRState:
        """Uniform means of phi, omega and theta."""
        sent = [self._local(of, state, silo, number) for silo in of.drawn_silos(number)]
        return FedBRState(*(torch.stack(parts).mean(dim=0) for parts in zip(*sent, strict=True)))

    def _local(self, of: Federation, state: FedBRState, silo: str, number: int) -> tuple[Tensor, Tensor]:
        """Lines 5 to 11: theta steps up L_con, then phi and omega step down the whole loss.

        The model's steps have the job's momentum: none in the paper's FedBR, 0.9 in its FedAvg.
        """
        w, theta, eta = state.w, state.theta, of.rate(number)
        momentum, v = of.spec.training.optimizer.momentum, torch.zeros_like(w)
        means = self._means(of, silo)
        given = of.features(w, means).detach()
        for x, y in of.batches(silo, number, of.steps(silo)):
            if self.contrast:
                with torch.no_grad():
                    phi = of.features(w, means), given, of.features(w, x)
                theta = theta + eta * gradient(self._contrast(of, *phi), theta)
            v = momentum * v + gradient(self._loss(of, x, y, means, given, theta), w)
            w = w - eta * v
        return w, theta

    def _loss(
        self, of: Federation, x: Tensor, y: Tensor, means: Tensor, given: Tensor, theta: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """CE(x, y) + lambda CE(x_p, 1 / C) + mu L_con, of w."""

        def loss(w: Tensor) -> Tensor:
            phi = of.features(w, x)
            found = functional.cross_entropy(of.class_logits(w, phi), y)
            if not self.pseudo and not self.contrast:
                return found
            phi_p = of.features(w, means)
            if self.pseudo:
                found = found - self.pseudo * of.class_logits(w, phi_p).log_softmax(dim=1).mean()
            if self.contrast:
                found = found + self.contrast * self._contrast(of, phi_p, given, phi)(theta)
            return found

        return loss

    def _contrast(
        self, of: Federation, phi_p: Tensor, given: Tensor, phi: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """Mean of -log f1 / (f1 + f2) over pairs, of theta."""
        n = min(len(phi_p), len(phi))
        network = _shapes(of.network.feature)

        def loss(theta: Tensor) -> Tensor:
            parts = tensors(theta, network)
            p, g, k = (functional_call(network, parts, (part[:n],)) for part in (phi_p, given, phi))
            f1, f2 = ((functional.cosine_similarity(p, other, dim=1) / TEMPERATURE).exp() for other in (g, k))
            return -(f1 / (f1 + f2)).log().mean()

        return loss

    def _means(self, of: Federation, silo: str) -> Tensor:
        """x_p, as many as a batch holds, the same in all rounds."""
        count = of.spec.training.batch_size
        if self.pseudo_data == "own":
            generator = torch.Generator().manual_seed(of.seed(silo, "pseudo-data"))
            owners = [silo] * count
        else:
            generator = torch.Generator().manual_seed(of.seed("central pseudo-data"))
            names = list(of.silos)
            owners = [names[int(torch.randint(len(names), (1,), generator=generator))] for _ in range(count)]
        found = []
        for owner in owners:
            images = of.silos[owner][0]
            found.append(
                images[torch.randperm(len(images), generator=generator)[:AVERAGED_IMAGES]].mean(dim=0)
            )
        return torch.stack(found)


def projection(width: int) -> nn.Sequential:
    """Projection P_theta of features, with layers d -> 2d -> 2d -> d."""
    return nn.Sequential(
        nn.Linear(width, 2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, 2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width),
    )


@lru_cache(maxsize=1)
def _shapes(width: int) -> nn.Sequential:
    with torch.device("meta"):
        return projection(width)
