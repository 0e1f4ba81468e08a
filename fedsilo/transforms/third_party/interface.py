"""What a package writes to offer a transform: what silos send in the place of a model, and what becomes of that.

It is a function of tensors and nothing else. It is handed no examples, no method's state and no network, runs the same
in a simulation, in processes and in a replay, and what it is not made for is refused before a job begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np

from fedsilo.methods.interface import MethodConfig
from fedsilo.methods.state import Tree
from fedsilo.wire import TensorSpec

Tensors = Mapping[str, np.ndarray]
"""Tensors by name, of which those that silos were handed cannot be written to."""

CompatibleField = Literal["spec.aggregation.rule", "spec.privacy.differentialPrivacy"]
"""Fields of a job that a transform can say it is made for."""


class TransformConfig(MethodConfig):
    """Base of a transform's `config` in `spec.transforms`; it is read as a method's is."""


class UpdateTransform(ABC):
    """Base of transforms that packages offer in the group `fedsilo.transforms`.

    A transform is given the tensors of a model that a silo has trained: those of float32 that the task handed out and
    that every update has, without the statistics of BatchNorm. All else of an update passes it by.

    :cvar Config: what `config` of its entry in `spec.transforms` may hold, a `TransformConfig`; annotate `config` with
        the same class.
    :cvar goes_with: fields that a job of it may have beside it. With `spec.aggregation.rule` the models of all silos
        are in memory at once. With `spec.privacy.differentialPrivacy`, of examples or persons, `encode` must be a
        function of its arguments alone: it comes after the noise, and nobody can see whether it does anything else.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    Config: ClassVar[type[TransformConfig]] = TransformConfig
    goes_with: ClassVar[frozenset[CompatibleField]] = frozenset()

    config: TransformConfig

    def __init__(self, config: TransformConfig) -> None:
        self.config = config

    @abstractmethod
    def sends(self, model: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        """What is sent in the place of these tensors, in order; guard and aggregator refuse everything else.

        Several may come of one, or one of several; names are free, but those of other tensors of the update are taken.
        """

    @abstractmethod
    def encode(self, model: Tensors, base: Tensors, kept: Tensors) -> tuple[Tree, Tree]:
        """What a silo sends, as `sends` says, and what it keeps of this until its next update of the same phase.

        :param model: as the silo has trained it; finite.
        :param base: the same tensors as the silo was handed them.
        :param kept: what it kept; nothing at first, and nothing that an update left which never counted.
        """

    @abstractmethod
    def decode(self, sent: Tensors, base: Tensors) -> Tree:
        """The model that comes of what was sent: the same names, shapes and types as `base`.

        It must be finite for every finite `base`, zeros among them: what is sent is tried with these before it counts.
        """
