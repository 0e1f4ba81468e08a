"""SCAFFOLD, and ScaMAP's common model, which is SCAFFOLD under restricted softmax.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1; Li et
al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", eq. 8 and Algorithm 1.
What ScaMAP's second stage makes never leaves a silo and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.literal.federation import Batch, Federation, gradient


@dataclass(frozen=True)
class ScaffoldState:
    """What Algorithm 1 has before a round.

    :param x: the common model.
    :param c: the common control variate.
    :param own: c_i of every silo.
    :param longest: norm of the longest step along a corrected gradient in the round before, over its rate.
    """

    x: Tensor
    c: Tensor
    own: Mapping[str, Tensor]
    longest: float = 0.0

    @property
    def model(self) -> Tensor:
        """Vector x of the common model."""
        return self.x

    @property
    def measures(self) -> dict[str, float]:
        """How far silos' variates are from the common one, and how long the model and its steps are."""
        apart = [float((own - self.c).norm()) for own in self.own.values()]
        return {"apart": sum(apart) / len(apart), "longest": self.longest, "norm": float(self.x.norm())}


@dataclass(frozen=True)
class Scaffold:
    """Algorithm 1, and what the experiments change in it.

    :param server_rate: eta_g.
    :param option: of line 12: I, the gradient of all of the silo's examples at x; II, the mean of the steps.
    :param controlled: with variates; without them it is FedAvg, which all silos count alike in.
    :param alpha: scale of the logits of classes that a silo lacks; 1 is plain softmax.
    :param part: of the local steps that are taken: half, in MAP's Algorithm 1.
    """

    server_rate: float = 1.0
    option: Literal["I", "II"] = "II"
    controlled: bool = True
    alpha: float = 1.0
    part: float = 1.0

    def start(self, of: Federation) -> ScaffoldState:
        """c = c_i = 0."""
        zero = torch.zeros_like(of.initial)
        return ScaffoldState(of.initial, zero, dict.fromkeys(of.silos, zero))

    def round(self, of: Federation, state: ScaffoldState, number: int) -> ScaffoldState:
        """Lines 2 to 17."""
        x, c, drawn = state.x, state.c, of.drawn_silos(number)
        moves, changes, own, longest = [], [], dict(state.own), 0.0
        for silo in drawn:
            y, after, length = self._local(of, state, silo, number)
            moves.append(y - x)
            changes.append(after - own[silo])
            own[silo], longest = after, max(longest, length)
        x = x + self.server_rate * torch.stack(moves).mean(dim=0)
        c = c + torch.stack(changes).sum(dim=0) / len(of.silos)
        return ScaffoldState(x, c, own, longest)

    def _local(
        self, of: Federation, state: ScaffoldState, silo: str, number: int
    ) -> tuple[Tensor, Tensor, float]:
        """Lines 6 to 13: y_i, the new c_i, and the longest corrected gradient."""
        x, c, own, eta = state.x, state.c, state.own[silo], of.rate(number)
        training, scales = of.spec.training, self._scales(of, silo)

        def loss(w: Tensor, batch: Batch) -> Tensor:
            return functional.cross_entropy(scales * of.logits(w, batch[0]), batch[1])

        y, longest = x, torch.zeros(())
        tau = ceil(self.part * of.steps(silo))
        for batch in of.batches(silo, number, tau):
            g = gradient(lambda w, batch=batch: loss(w, batch), y)  # type: ignore[misc]
            d = g - own + c
            longest = torch.maximum(longest, d.norm())
            if training.gradient_clip is not None:
                d = d * min(1.0, training.gradient_clip / (float(d.norm()) + 1e-6))
            y = y - eta * (d + training.optimizer.weight_decay * y)
        if not self.controlled:
            return y, own, float(longest)
        if self.option == "I":
            return y, gradient(lambda w: loss(w, of.silos[silo]), x), float(longest)
        return y, own - c + (x - y) / (tau * eta), float(longest)

    def _scales(self, of: Federation, silo: str) -> Tensor:
        """s_c, 1 of the silo's classes and alpha of the others."""
        held = torch.bincount(of.silos[silo][1], minlength=of.network.classifier.out_features) > 0
        return torch.where(held, 1.0, self.alpha).to(of.dtype)
