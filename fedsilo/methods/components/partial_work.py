"""Stragglers are silos that do a part of a round's local work, at random, and are averaged like the others.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Section 5.2: of the silos of a round a part
does a number of epochs that is drawn uniformly from 1 to E. Who, and how many, follows from the job's seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.training import TrainingSpec
from fedsilo.errors import MethodError
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.components.settings import whole_number
from fedsilo.methods.interface import Exchange, SiloContext, SiloTask
from fedsilo.methods.schedule import participants

if TYPE_CHECKING:
    from fedsilo.learning.training import LocalTraining

WORK = "work"
"""Setting of a straggler's task: how many epochs it does, or steps where the job counts local work in steps."""


def full_work(training: TrainingSpec) -> int:
    """Epochs of a round, or its steps where the job counts them."""
    return training.local_steps or training.local_epochs


def stragglers(
    spec: FederatedJobSpec, exchange: Exchange, silos: Sequence[str], part: float
) -> dict[str, int]:
    """Straggler of a round -> how much it does, as anybody can draw it who knows the job.

    :param silos: of the job, in its order.
    :param part: of the round's silos that are stragglers, to the nearest whole number of them; a half is rounded up.
    """
    drawn = participants(spec, exchange, silos)
    if not (count := math.floor(part * len(drawn) + 0.5)):
        return {}
    rng = np.random.default_rng(derive_seed(spec.training.seed, "stragglers", exchange.round))
    return {
        silo: int(rng.integers(1, full_work(spec.training), endpoint=True))
        for silo in rng.choice(sorted(drawn), count, replace=False).tolist()
    }


def partial_work(silo: SiloContext, task: SiloTask, part: float) -> LocalTraining:
    """The job's local training, of a straggler only as much as its task says, whatever `minSteps` is.

    :param part: as in `stragglers`; where it is 0 every silo does all of the work.
    :raises MethodError: the task says what is no part of the round's work, or the job has no stragglers.
    """
    training, plan = silo.spec.training, silo.local_training(task)
    if WORK not in task.settings:
        return plan
    if not part:
        raise MethodError(
            f"task setting {WORK}: {task.settings[WORK]!r} has no meaning in a job without stragglers; run the "
            "aggregator and the silos in one version, and set spec.method.config.stragglers where some silos do less"
        )
    work = whole_number(task, WORK, 1, full_work(training))
    if training.local_steps is None:
        return replace(plan, epochs=work, min_steps=1)
    return replace(plan, min_steps=work, max_steps=work)
