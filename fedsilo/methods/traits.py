"""What a declaration says of its method beside its steps and its models: records whose defaults hold for most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from fedsilo.api.job import FederatedJobSpec
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.tasks.interface import EVERY_TASK

MechanismName = Literal["DP-SGD", "Gaussian"]
"""What keeps a payload private: clipped gradients of sampled examples with noise in every step, or noise on sums."""

SGD = frozenset(("sgd",))
"""Optimisers of methods that reckon with steps along the gradient."""


ONE_FEATURE = frozenset(("classification", "multilabel", "regression"))
"""Learning tasks in which an example has one feature, which the classifier reads."""


@dataclass(frozen=True)
class TaskTraits:
    """Learning tasks that a method has a meaning for; the default is of one with a loss of its own.

    :param names: those of the tasks, and `own` for those of a job's own package.
    :param reason: why the others are refused, a phrase after "because".
    :param needs_features: whether the model must be an encoder with a classifier; otherwise any module will do.
    :param learned: whether silos train by the task's loss, so that it may weigh classes; what is made for several
        tasks always takes theirs.
    """

    names: frozenset[str] = frozenset(("classification",))
    reason: str = "it is made for examples of exactly one class each"
    needs_features: bool = True
    learned: bool = False


UNRESTRICTED_TASKS = TaskTraits(EVERY_TASK, needs_features=False)
"""Traits of methods that have a meaning for whatever has a loss."""


@dataclass(frozen=True)
class AveragingTraits:
    """The rule by which means weight silos where a job names none: by their samples, or all alike.

    :param uniform_variants: values of `config.variant` with which it is `uniform`, whatever `rule` says.
    """

    rule: Literal["samples", "uniform"] = "samples"
    uniform_variants: tuple[str, ...] = ()

    def by_default(self, config: BaseModel) -> str:
        """The rule of a job that names none.

        :param config: the job's configuration of the method.
        """
        return "uniform" if getattr(config, "variant", None) in self.uniform_variants else self.rule


@dataclass(frozen=True)
class StateTraits:
    """What a method's halves keep between rounds, phrases for people; the defaults are those of averaging.

    :param silo: what the silo half keeps and never sends.
    """

    aggregator: str = "the model"
    silo: str = "nothing"


@dataclass(frozen=True)
class TrainingTraits:
    """How a method's silos train, for whoever checks a job, trains it or charges for it.

    :param optimizers: names of `spec.training.optimizer` with which the training has a meaning.
    :param refuses_float16: why silos cannot train with `spec.training.precision: float16`, which scales the loss, a
        clause after the method's name; None where they can.
    :param refuses_kept_state: why silos cannot go on with the optimiser's state of their last round, a
        clause after the method's name; None where they can.
    :param data_parallel: whether several processes of a silo may share its batches: that its steps train by `fit`
        alone, whose losses are means over examples and change nothing beside the model.
    :param accepts_trainer: whether `spec.training.trainer` may take the place of the training: that silos train on the
        task's loss alone, from the model that they are given, and send what comes of it.
    :param sends_after: the least that anything that a silo sends follows from: where a job counts steps, all of them,
        half of them, rounded up, or one; `one batch` is the same in any job.
    :param plans: step -> what is trained in it where that is another plan than the job's.
    :param mechanisms: payload kinds -> what keeps them private where the job has `spec.privacy.differentialPrivacy`;
        the others have nothing that does, so that such a job is refused. A method that names one has its silo half go
        through it, and its replies name in `Reply.noised` the tensors that did: `train_model` does, and
        `SiloContext.class_moments`. All other tensors must be as they were handed out.
    """

    optimizers: frozenset[str] = frozenset(("sgd", "adam", "adamw"))
    refuses_float16: str | None = None
    refuses_kept_state: str | None = None
    data_parallel: bool = True
    accepts_trainer: bool = False
    sends_after: Literal["all steps", "half of the steps", "one step", "one batch"] = "all steps"
    plans: Mapping[str, LocalSteps] = field(default_factory=dict)
    mechanisms: Mapping[str, MechanismName] = field(default_factory=dict)

    def min_examples_per_update(self, spec: FederatedJobSpec) -> int | None:
        """Fewest examples that an update of training may follow from in a silo that holds more; None where all count.

        Each must be one of many in whatever a silo sends: see `check_training`, the silo's policy, and `fit`.
        """
        batch, steps = spec.training.examples_per_step, spec.training.local_steps
        if self.sends_after == "one batch":
            return batch
        if steps is None:
            return None
        taken = {"all steps": steps, "half of the steps": math.ceil(steps / 2), "one step": 1}
        return taken[self.sends_after] * batch

    def local_steps(self, spec: FederatedJobSpec, step: str) -> LocalSteps:
        """Steps of training that a silo takes in a round of this step: what its silo half counts, and what is charged
        where they are private.
        """
        return self.plans.get(step) or LocalSteps.of(spec.training)


PLAIN_TRAITS = TrainingTraits(accepts_trainer=True, mechanisms={"model": "DP-SGD"})
"""Traits of methods whose silos train on the task's loss alone, and send the model."""
