"""What the task runner hands to the silo half of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from torch import nn
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.api.python_reference import PYTHON
from fedsilo.api.silo import Silo
from fedsilo.data.schema import Schema
from fedsilo.errors import MethodError
from fedsilo.learning.custom_training import (
    ExampleSet,
    TrainingBudget,
    TrainingContext,
    TrainingData,
    TrainingOutcome,
    train_with,
)
from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP, ProcessGroup
from fedsilo.learning.devices import pick_device
from fedsilo.learning.losses import task_divisor
from fedsilo.learning.models import (
    Model,
    as_model,
    build_module,
    initial_model,
    load_tree,
    signature,
    try_in_training,
    with_preprocessing,
)
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.parameters import ParameterPartition, freeze, parts_of
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import LocalTraining
from fedsilo.methods import registry
from fedsilo.methods.components.class_moments import class_moments
from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.methods.moments import ClassMoments, Spread
from fedsilo.methods.state import Tree
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo.examples import read_examples
from fedsilo.silo.network_cache import NetworkCache
from fedsilo.silo.reply_limits import min_samples_per_class, min_samples_per_feature, min_samples_per_update
from fedsilo.silo.secret import Secret
from fedsilo.tasks.registry import bind

OWN_METRICS = ("loss",)
"""Scalars of an own training: those that every method which takes one declares for its step."""

DEADLINE_SHARE = 0.9
"""Part of the round's deadline in which an own training must return: what is late is reported before the round
is over."""


def seconds_of_trainer(spec: FederatedJobSpec) -> float:
    """Time that `spec.training.trainer` gets in a round."""
    return DEADLINE_SHARE * spec.participation.round_deadline.seconds


def trained_by_the_job(
    spec: FederatedJobSpec,
    model: nn.Module,
    data: TrainingData,
    plan: LocalTraining,
    place: tuple[int, int],
    state: Mapping[str, np.ndarray],
) -> TrainingOutcome:
    """What `spec.training.trainer` makes of a model; it is checked.

    :param plan: of the round, for its rate, seed and processes.
    :param place: number of the round, and how many there are.
    :param state: what the function kept in the last round.
    """
    name = spec.training.trainer
    assert name is not None, "asked for only where the job names one"
    training = spec.training
    budget = TrainingBudget(
        plan.epochs, training.batch_size, plan.lr, seconds_of_trainer(spec), training.local_steps
    )
    kept = {key: np.array(array) for key, array in state.items()}
    device, group = pick_device(spec.training.device), plan.group
    context = TrainingContext(device, plan.seed, *place, budget, kept, group.rank, group.world_size)
    return train_with(name, model, data, context, OWN_METRICS, spec.training.trainer_metrics or ())


@dataclass(frozen=True)
class LocalContext(SiloContext):
    """The silo half's view: its examples, the job, its own seeds.

    :param shuffle: draw a new order in each epoch, as every job does; tests of recorded batches turn it off.
    :param preprocessing: what is done with raw values first, where the job does anything.
    :param kept: state of the optimiser from the silo's last round, where the job keeps it.
    :param parts: of the model; None where all of it is shared.
    :param initial: the initial weights, where the task hands them out.
    :param local: the silo's own tensors; none before its first training.
    :param schema: names and types of the silo's data, which it announces.
    :param findings: what a check of the data says; None where the job does not ask for one.
    :param group: the silo's processes, all of which run this step.
    :param min_samples_per_update: examples that steps must see for what comes of them to be sent.
    :param kept_network: used again from one task to the next; None where every one is built.
    :param secret: what random numbers follow from that nobody else can draw.
    """

    shuffle: bool = True
    preprocessing: Mapping[str, np.ndarray] | None = None
    kept: OptimizerState | None = None
    parts: ParameterPartition | None = None
    initial: Mapping[str, np.ndarray] | None = None
    local: Mapping[str, np.ndarray] = field(default_factory=dict)
    schema: Schema = field(default_factory=Schema, kw_only=True)
    findings: tuple[AnnouncedFinding, ...] | None = field(default=None, kw_only=True)
    group: ProcessGroup = field(default=SINGLE_PROCESS_GROUP, kw_only=True)
    kept_network: NetworkCache | None = field(default=None, kw_only=True)
    min_samples_per_update: int = field(default=1, kw_only=True)
    secret: Secret = field(default_factory=Secret, kw_only=True)

    @override
    def initial_model(self) -> Tree:
        """The job's model with its initial weights, as at the aggregator."""
        if self.initial is not None:
            return {tensor.name: self.initial[tensor.name] for tensor in self.signature.tensors}
        if self.spec.model.initial_weights is not None:
            raise MethodError(
                f"method {self.spec.method.name} asks for the initial weights in a silo, where they are only if its "
                "declaration says silos_need_initial"
            )
        return initial_model(self.spec)

    @override
    def model(self, tree: Mapping[str, np.ndarray], architecture: ModelSpec | None = None) -> Model:
        """A model on the device with these weights; the job's own architecture unless another is given.

        Tensors that silos do not share, and that the tree need not have, are the silo's own or the initial ones.
        """
        return as_model(self.module(tree, architecture), "the job's model is")

    @override
    def module(self, tree: Mapping[str, np.ndarray], architecture: ModelSpec | None = None) -> nn.Module:
        module = self._network_to_load(architecture or self.spec.model)
        load_tree(module, self.full_tree(tree))
        if self.parts is not None:
            freeze(module, self.parts.frozen)
        if self.preprocessing is not None:
            with_preprocessing(module, Preprocessing(self.preprocessing))
        return module.to(pick_device(self.spec.training.device))

    def full_tree(self, tree: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """All tensors of the model: those of the tree, the silo's own, and the initial ones."""
        return tree if self.parts is None else self.parts.full_tree(self.initial or {}, self.local, tree)

    def _network_to_load(self, architecture: ModelSpec) -> nn.Module:
        kept, training = self.kept_network, self.spec.training
        # What the job's own training does with a network, and perhaps goes on doing in a thread, is not known.
        if kept is None or training.trainer is not None or pick_device(training.device).type != "cpu":
            return self.network(architecture)
        return kept.take(architecture, lambda: self.network(architecture))

    def untrained_network(self) -> nn.Module:
        """The job's network on the CPU with arbitrary weights, of which those are frozen that the job freezes."""
        module = self.network(self.spec.model)
        if self.parts is not None:
            freeze(module, self.parts.frozen)
        return module

    def network(self, architecture: ModelSpec) -> nn.Module:
        """A new network with arbitrary weights."""
        return build_module(architecture, self.spec.data, 0, self.spec.task)

    @override
    def local_training(self, task: SiloTask) -> LocalTraining:
        """The job's local training for this round: rate of the schedule, seed of silo and round.

        What is sent follows from it, so its steps must see `min_samples_per_update` examples.
        """
        seed = self.seed("batches", task.phase, task.round)
        plan = LocalTraining.of(
            self.spec.training, round=task.phase_round, rounds=task.phase_rounds, seed=seed
        )
        divisor = task_divisor(self.learning_task, self.train.labels)
        return replace(
            plan,
            shuffle=self.shuffle,
            kept=self.kept,
            divisor=divisor,
            group=self.group,
            min_examples=self.min_samples_per_update,
        )

    @override
    def class_moments(
        self, task: SiloTask, features: np.ndarray | None = None, spread: Spread | None = None
    ) -> ClassMoments:
        """Counts and moments of the classes of the training examples, as they may leave the silo."""
        return class_moments(self, task, features, spread)

    @override
    def own_training(
        self, task: SiloTask, model: nn.Module, state: Mapping[str, np.ndarray]
    ) -> TrainingOutcome:
        """What the job's own function, `spec.training.trainer`, makes of the model; it is checked."""
        data = TrainingData(ExampleSet(self.train), ExampleSet(self.validation))
        plan = self.local_training(task)
        return trained_by_the_job(self.spec, model, data, plan, (task.phase_round, task.phase_rounds), state)

    @override
    def seed(self, *purpose: str | int) -> int:
        """Seed for a purpose, derived from the job's seed and this silo's reference."""
        return derive_seed(self.spec.training.seed, self.silo, *purpose)

    @override
    def secret_generator(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for a purpose that nobody outside of the silo can draw again."""
        return self.secret.generator(*purpose)


def require_trainable(spec: FederatedJobSpec, module: nn.Module) -> None:
    """Try the job's network in training mode, before round 1, where what calls it there is fedsilo's own.

    A training, method or learning task of other people's may take whatever their network gives.

    :raises MethodError: when it fails, or gives what the learning task cannot take.
    """
    own_task = spec.task is not None and spec.task.name.startswith(PYTHON)
    if spec.training.trainer is None and not own_task and registry.package_of(spec.method.name) is None:
        try_in_training(module, spec)


def open_context(
    spec: FederatedJobSpec, silo: Silo, root: Path, group: ProcessGroup = SINGLE_PROCESS_GROUP
) -> LocalContext:
    """The silo's examples and the job's model, as the silo half finds them.

    :param root: directory that relative dataset paths start from.
    :param group: the silo's processes, all of which run its tasks.
    :raises ManifestInvalid: when the parts of the model are not as the job describes them.
    :raises MethodError: when its network cannot be trained.
    :raises DataInvalid: when the silo's dataset cannot be read or is not what the job says.
    """
    examples = read_examples(spec, silo, root)
    module = build_module(spec.model, spec.data, 0, spec.task)
    require_trainable(spec, module)
    whole = signature(module, bind(spec.task, spec.data))
    parts = parts_of(spec.model.parameters, module)
    return LocalContext(
        spec=spec,
        signature=parts.signature(whole) if parts else whole,
        silo=str(silo),
        train=examples.train,
        validation=examples.validation,
        schema=examples.schema,
        findings=examples.findings,
        min_samples_per_class=min_samples_per_class(spec, silo),
        min_samples_per_feature=min_samples_per_feature(spec, silo),
        min_samples_per_update=min_samples_per_update(silo.spec.policy),
        parts=parts,
        group=group,
    )
