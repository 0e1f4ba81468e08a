"""Label distributions P_k = (n_k^1, ..., n_k^C) / n_k: disclosed as class counts, or inferred from models."""

from __future__ import annotations

import logging

import numpy as np

from fedsilo.methods.interface import Reply, ServerContext, SiloContext, SiloTask, Updates
from fedsilo.methods.state import State

log = logging.getLogger("fedsilo.methods")

INPUTS = 10_000
"""Random inputs r from which a silo's distribution is inferred, FedConcat-ID."""

BATCH = 100
"""Inputs at a time, as in the released code; a divisor of `INPUTS`."""


def disclose(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Samples of each class, as one block per class; a class below the minimum is left out."""
    del task, private
    counts = np.bincount(silo.train.labels.cpu().numpy(), minlength=silo.signature.classes)
    shown = {label: int(count) for label, count in enumerate(counts) if count >= silo.min_samples_per_class}
    return Reply(
        tensors={f"count/{label}": np.array(count, np.int64) for label, count in shown.items()},
        samples=len(silo.train),
        support={f"count/{label}": count for label, count in shown.items()},
    )


def from_counts(job: ServerContext, updates: Updates) -> dict[str, np.ndarray]:
    """Silo -> (C,) label distribution; uniform for a silo that may disclose no class at all."""
    classes = job.signature.classes
    rows = {}
    for silo in updates.silos:
        counts = np.zeros(classes)
        for name, count in updates.tensors(silo, "class_counts").items():
            # One below the minimum, which no honest silo sends, counts as not disclosed.
            if count >= job.spec.privacy.min_samples_per_class:
                counts[int(name.rpartition("/")[2])] = count
        if not counts.any():
            log.warning(
                "silo %s disclosed the count of no class: its label distribution counts as uniform", silo
            )
        rows[silo] = counts / counts.sum() if counts.any() else np.full(classes, 1 / classes)
    return rows


def from_models(job: ServerContext, updates: Updates) -> dict[str, np.ndarray]:
    """Silo -> (C,) mean over random inputs x ~ U[0, 1] of softmax(f_k(x)), from its model alone (FedConcat-ID).

    The inputs are the same for every silo and drawn batch by batch, for large images would not fit at once.
    Evaluation mode: what dropout and batch statistics would add (the released code has them) is noise.
    """
    import torch

    from fedsilo.learning.models import build_model, evaluating, load_tree

    seed, shape = job.seed("random inputs"), job.spec.data.input_shape
    model = build_model(job.spec.model, job.spec.data, seed=0)
    rows = {}
    for silo in updates.silos:
        load_tree(model, updates.tensors(silo, "model"))
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros(job.signature.classes, dtype=torch.float64)
        with evaluating(model), torch.inference_mode():
            for _ in range(INPUTS // BATCH):
                inputs = torch.rand((BATCH, *shape), generator=generator)
                total += model(inputs).double().softmax(dim=1).sum(dim=0)
        rows[silo] = (total / INPUTS).numpy()
    return rows
