"""FedBR's local loss sets pseudo-data against biased classifiers, and a min-max contrast against biased features.

Guo, Tang, Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias Reduction", ICML
2023, Section 4 and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedsilo.learning.models import Model, evaluating
from fedsilo.methods.components.mixing import Mix, unmixed_batch

PseudoData = Callable[[], tuple[Tensor, Tensor]]
"""The pseudo-data of a step: inputs x_p (B, *input shape) and soft labels (B, C)."""


def projection(width: int) -> nn.Sequential:
    """The projection P_theta of features, with layers d -> 2d -> 2d -> d, ReLU, and PyTorch's initial weights."""
    return nn.Sequential(
        nn.Linear(width, 2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, 2 * width),
        nn.ReLU(),
        nn.Linear(2 * width, width),
    )


@dataclass(frozen=True)
class Terms:
    """Weights and temperature of the loss.

    :param pseudo: lambda, of the cross-entropy on pseudo-data (component 1).
    :param contrast: mu, of the contrast (component 2).
    :param max_step: step theta before each step of the model; otherwise theta stays.
    :param global_once: the given model's features of the first step's pseudo-data serve for all steps.
    """

    pseudo: float
    contrast: float
    temperature: float
    max_step: bool = True
    global_once: bool = False


class BiasReducedLoss:
    """CE(x, y) + lambda CE(x_p, y_p) + mu L_con; before that, theta takes a step up L_con.

    L_con is the mean of -log f1 / (f1 + f2), f1 = exp(sim(P phi(x_p), P phi_g(x_p)) / tau) and
    f2 = exp(sim(P phi(x_p), P phi(x)) / tau), sim being the cosine.

    :param given: the model as it was downloaded, phi_g; fixed, in evaluation mode.
    :param theta: the projection P, changed in place by the max step.
    :param rate: learning rate of the max step.
    :param mix: what a batch is mixed by before all else.
    """

    def __init__(
        self,
        terms: Terms,
        given: Model,
        theta: nn.Module,
        pseudo_data: PseudoData,
        rate: float,
        mix: Mix = unmixed_batch,
    ) -> None:
        self._terms, self._given, self._theta = terms, given, theta
        self._draw, self._rate, self._mix = pseudo_data, rate, mix
        self._global: Tensor | None = None

    def __call__(self, model: Model, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch, for a step of the model: no gradient reaches theta."""
        terms = self._terms
        inputs, soft_labels = self._draw()
        mixed = self._mix(features, labels)
        real, pseudo = model.features(mixed.inputs), model.features(inputs)
        logits = model.classifier(real)
        loss = mixed.cross_entropy(logits)
        if terms.pseudo:
            loss = loss + terms.pseudo * functional.cross_entropy(model.classifier(pseudo), soft_labels)
        if terms.contrast:
            # Pairs: a batch that is shorter than the pseudo-data meets the first of them, and the other way round.
            n = min(len(real), len(pseudo))
            triple = pseudo[:n], self._global_features(inputs)[:n], real[:n]
            if terms.max_step:
                self._ascend(*(part.detach() for part in triple))
            fixed = {name: tensor.detach() for name, tensor in self._theta.named_parameters()}
            loss = loss + terms.contrast * self._contrast(fixed, *triple)
        return loss

    def _ascend(self, pseudo: Tensor, given: Tensor, real: Tensor) -> None:
        parameters: dict[str, Tensor] = dict(self._theta.named_parameters())
        gradients = torch.autograd.grad(
            self._contrast(parameters, pseudo, given, real), list(parameters.values())
        )
        with torch.no_grad():
            for parameter, gradient in zip(parameters.values(), gradients, strict=True):
                parameter.add_(gradient, alpha=self._rate)

    def _contrast(self, theta: dict[str, Tensor], pseudo: Tensor, given: Tensor, real: Tensor) -> Tensor:
        projected, near, far = (
            functional_call(self._theta, theta, (part,)) for part in (pseudo, given, real)
        )
        cosines = [functional.cosine_similarity(projected, other, dim=-1) for other in (near, far)]
        first = torch.zeros(len(pseudo), dtype=torch.int64, device=pseudo.device)
        return functional.cross_entropy(torch.stack(cosines, dim=1) / self._terms.temperature, first)

    def _global_features(self, inputs: Tensor) -> Tensor:
        if self._global is None or not self._terms.global_once:
            with evaluating(self._given), torch.no_grad():
                self._global = self._given.features(inputs)
        return self._global
