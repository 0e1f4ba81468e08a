"""Transforms as packages offer them, good ones and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pytest
from pydantic import BaseModel
from typing_extensions import override

from fedsilo.transforms.third_party import registry
from fedsilo.transforms.third_party.interface import CompatibleField, TransformConfig, UpdateTransform
from fedsilo.wire import TensorSpec

Tree = dict[str, np.ndarray]
Tensors = Mapping[str, np.ndarray]


class Halves(UpdateTransform):
    """Sends the change of each tensor in half precision."""

    name = "halves"
    title = "Half precision"

    @override
    def sends(self, model: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        return [TensorSpec(spec.name, spec.shape, "float16") for spec in model]

    @override
    def encode(self, model: Tensors, base: Tensors, kept: Tensors) -> tuple[Tree, Tree]:
        return {name: np.asarray(model[name] - base[name], np.float16) for name in model}, {}

    @override
    def decode(self, sent: Tensors, base: Tensors) -> Tree:
        return {name: base[name] + sent[name] for name in base}


class DampedTransform(Halves):
    """Sends a model that has changed by half as much, as a model."""

    name = "damped"

    @override
    def sends(self, model: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        return model

    @override
    def encode(self, model: Tensors, base: Tensors, kept: Tensors) -> tuple[Tree, Tree]:
        return {name: base[name] + (model[name] - base[name]) / 2 for name in model}, {}

    @override
    def decode(self, sent: Tensors, base: Tensors) -> Tree:
        return dict(sent)


class MadeForMore(Halves):
    """Says that it goes with all that a transform can go with."""

    name = "for-more"
    goes_with: ClassVar[frozenset[CompatibleField]] = frozenset(
        {"spec.aggregation.rule", "spec.privacy.differentialPrivacy"}
    )


class Keeping(Halves):
    """Adds what rounding leaves out to the next update."""

    name = "keeping"

    @override
    def encode(self, model: Tensors, base: Tensors, kept: Tensors) -> tuple[Tree, Tree]:
        wanted = {name: model[name] - base[name] + kept.get(name, np.float32(0)) for name in model}
        sent = {name: np.asarray(change, np.float16) for name, change in wanted.items()}
        return sent, {name: wanted[name] - sent[name] for name in sent}


class MisnamedTransform(Halves):
    """Has another name than its entry point."""

    name = "other"


class WithSettings(Halves):
    """Has a setting without a default."""

    class Config(TransformConfig):
        size: int

    name = "with-settings"


class LenientConfig(BaseModel):
    """Takes every field, and reads those that it knows."""

    size: int = 1


class Lenient(Halves):
    """Would not notice a misspelt setting."""

    name = "lenient"
    Config = LenientConfig  # type: ignore[assignment]


class Misshapen(Halves):
    """Says that it sends what no tensor can be."""

    name = "misshapen"

    @override
    def sends(self, model: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        return [TensorSpec(spec.name, spec.shape, "float8") for spec in model]


class UnfinishedTransform(UpdateTransform):
    """A transform that defines nothing."""


OFFERED_TRANSFORMS = {
    "halves": "Halves",
    "damped": "DampedTransform",
    "for-more": "MadeForMore",
    "keeping": "Keeping",
    "misnamed": "MisnamedTransform",
    "with-settings": "WithSettings",
    "lenient": "Lenient",
    "misshapen": "Misshapen",
    "unfinished": "UnfinishedTransform",
    "no-transform": "Tree",
    "absent": "Absent",
}


def offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have them found, as if their packages were installed, and one whose name no manifest can have."""
    points = [
        EntryPoint(name, f"{__name__}:{value}", registry.GROUP) for name, value in OFFERED_TRANSFORMS.items()
    ]
    points.append(EntryPoint("a b", "nonsense", registry.GROUP))
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setattr(registry, "_entry_points", registry._entry_points.__wrapped__)
