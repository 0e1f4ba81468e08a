"""FedConcat-ID at the aggregator: label distributions inferred from models, then FedConcat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from typing_extensions import override

from fedsilo.learning.models import build_model, evaluating, load_tree
from fedsilo.methods.fedconcat.server import FedConcatServer
from fedsilo.methods.interface import Assignment, Exchange, ServerContext
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State

BATCH_EXAMPLES = 100
"""Inputs at a time, as in the released code."""


@dataclass(frozen=True)
class FedConcatIDServer(FedConcatServer):
    """FedConcat's server half with label distributions inferred from the silos' models in stage 1.

    :param probes: random inputs from which a silo's distribution is inferred.
    """

    probes: int

    @override
    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """The common initial model before there are clusters."""
        if not state.values["member"]:
            return {silo: Assignment({"model": "initial"}) for silo in silos}
        return super().assign(job, state, exchange, silos)

    @override
    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        """After the first round: infer, cluster, and in the released form keep that round's models."""
        if state.values["member"]:
            return super().aggregate(job, state, exchange, updates)
        state = self.form_clusters(job, state, inferred_distributions(job, updates, self.probes))
        if self.config.variant == "paper":
            return state
        return self.train_encoders(job, state, exchange, updates)


def inferred_distributions(job: ServerContext, updates: Updates, probes: int) -> dict[str, np.ndarray]:
    """Silo -> (C,) mean over random inputs x ~ U[0, 1] of softmax(f_k(x)), from its model alone (FedConcat-ID).

    The inputs are the same for every silo and drawn batch by batch, for large images would not fit at once.
    Evaluation mode: what dropout and batch statistics would add (the released code has them) is noise.
    """
    seed, shape = job.seed("random inputs"), job.spec.data.input_shape
    model = build_model(job.spec.model, job.spec.data, seed=0)
    rows = {}
    for silo in updates.silos:
        load_tree(model, updates.tensors(silo, "model"))
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros(job.signature.classes, dtype=torch.float64)
        with evaluating(model), torch.inference_mode():
            for done in range(0, probes, BATCH_EXAMPLES):
                inputs = torch.rand((min(BATCH_EXAMPLES, probes - done), *shape), generator=generator)
                total += model(inputs).double().softmax(dim=1).sum(dim=0)
        rows[silo] = (total / probes).numpy()
    return rows
