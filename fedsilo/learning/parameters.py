"""The three parts of a model: tensors that are shared, frozen or local, see `spec.model.parameters`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.api.parameters import ParametersSpec
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.wire.tensors import ModelSignature, Tree, raw_bytes

if TYPE_CHECKING:
    from torch import nn

FIELD = "spec.model.parameters"

PARTS = ("shared", "frozen", "local")


@dataclass(frozen=True)
class ParameterPartition:
    """Names of the model's tensors by part; together they are all of them.

    :param names: all, in the order of the model's state.
    """

    names: tuple[str, ...]
    shared: frozenset[str]
    frozen: frozenset[str]
    local: frozenset[str]

    def signature(self, whole: ModelSignature) -> ModelSignature:
        """The signature with the shared tensors only: what silos send, and contracts are derived from."""
        return replace(whole, tensors=tuple(t for t in whole.tensors if t.name in self.shared))

    def full_tree(self, *trees: Mapping[str, np.ndarray]) -> Tree:
        """All tensors in the model's order, each from the last of the trees that has it."""
        return {name: next(tree[name] for tree in reversed(trees) if name in tree) for name in self.names}


def parts_of(spec: ParametersSpec | None, model: nn.Module) -> ParameterPartition | None:
    """The parts of a job's model; None where all of it is shared.

    :raises ManifestInvalid: naming a pattern that matches nothing, or a tensor that is of two parts.
    """
    if spec is None:
        return None
    for path, value, problem, remedy in parts_findings(spec, model):
        written = "" if value is ABSENT_VALUE else f"{value!r}: "
        raise ManifestInvalid(f"{path}: {written}{problem}; {remedy}")
    return _partition_parameters(spec, tuple(model.state_dict()))


def parts_findings(spec: ParametersSpec, model: nn.Module) -> list[Finding]:
    """Faults of a division: patterns that match nothing, or else tensors of two parts, or nothing that is shared."""
    state = model.state_dict(keep_vars=True)
    names = tuple(state)
    from fedsilo.learning.state_names import named_parameters

    if unmatched := [
        finding for part in PARTS for finding in _unmatched_patterns(part, getattr(spec, part), names)
    ]:
        return unmatched
    parts = _partition_parameters(spec, names)
    if overlapping := list(_overlapping(parts)):
        return overlapping
    if not any(name in parts.shared for name, _ in named_parameters(model, remove_duplicate=False)):
        problem = "no parameter is shared, so that silos would learn nothing from each other"
        return [(FIELD, ABSENT_VALUE, problem, "leave some to shared")]
    return list(_divided_tensors(parts, state))


def _partition_parameters(spec: ParametersSpec, names: tuple[str, ...]) -> ParameterPartition:
    """The parts as the patterns name them, and what none of them names in one of them."""
    named = {part: {name for name in names if _is_named(name, getattr(spec, part))} for part in PARTS}
    named["frozen" if spec.shared else "shared"] |= set(names) - set().union(*named.values())
    return ParameterPartition(names, *(frozenset(named[part]) for part in PARTS))


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def freeze(model: nn.Module, frozen: frozenset[str]) -> None:
    """Keep training from changing these tensors.

    Parameters get no gradient. A module with a frozen buffer, such as BatchNorm's running statistics, stays in
    evaluation mode, since a forward pass in training mode would change it.
    """
    from fedsilo.learning.state_names import memory_place

    places = {
        memory_place(tensor) for name, tensor in model.state_dict(keep_vars=True).items() if name in frozen
    }
    for parameter in model.parameters():
        if memory_place(parameter) in places:
            parameter.requires_grad_(False)
    for module in model.modules():
        if any(memory_place(buffer) in places for buffer in module.buffers(recurse=False)):
            _stay_in_evaluation(module)


def changed_tensors(names: Sequence[str], before: Mapping[str, np.ndarray], after: Tree) -> Iterator[str]:
    """Names of tensors that are not the same to the bit."""
    for name in names:
        one, other = before[name], after[name]
        same = one.shape == other.shape and one.dtype == other.dtype
        if not same or not np.array_equal(raw_bytes(one), raw_bytes(other)):
            yield name


def _unmatched_patterns(part: str, patterns: Sequence[str], names: Sequence[str]) -> Iterator[Finding]:
    for position, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            remedy = f"the nearest of its {len(names)} is {near[0] if near else 'none'}"
            yield f"{FIELD}.{part}[{position}]", pattern, "matches no tensor of the model", remedy


def _overlapping(parts: ParameterPartition) -> Iterator[Finding]:
    for number, part in enumerate(PARTS):
        for other in PARTS[number + 1 :]:
            if both := sorted(getattr(parts, part) & getattr(parts, other)):
                problem = f"tensor {both[0]!r} is named in {part} and in {other}"
                yield FIELD, ABSENT_VALUE, problem, "narrow the patterns"


def _divided_tensors(parts: ParameterPartition, state: Mapping[str, object]) -> Iterator[Finding]:
    """Tensors with two names, such as tied embeddings, that are of two parts."""
    seen: dict[int, str] = {}
    for name, tensor in state.items():
        first = seen.setdefault(id(tensor), name)
        for part in PARTS:
            if (name in getattr(parts, part)) != (first in getattr(parts, part)):
                problem = f"{first!r} and {name!r} are one tensor and stand in two parts"
                yield FIELD, ABSENT_VALUE, problem, f"name both in {part}, or neither"
                break


def _stay_in_evaluation(module: nn.Module) -> None:
    from torch import nn

    def train(mode: bool = True) -> nn.Module:
        nn.Module.train(module, mode)  # modules below follow as they are asked to
        module.training = False
        return module

    module.train = train  # type: ignore[method-assign]
    module.training = False


def require_unchanged(parts: ParameterPartition, before: Mapping[str, np.ndarray], after: Tree) -> None:
    """Check what a silo's training gave back.

    :param before: the initial weights.
    :raises MethodError: naming a tensor that is missing, or a frozen one that was changed.
    """
    if missing := [name for name in parts.names if name not in after]:
        raise MethodError(f"training gave back no tensor {missing[0]!r}; it must give back the whole model")
    changed = next(changed_tensors(sorted(parts.frozen), before, after), None)
    if changed is not None:
        raise MethodError(
            f"training changed tensor {changed!r}, which spec.model.parameters freezes: nothing is sent; train only "
            "parameters with requires_grad, and leave buffers of frozen modules as they are"
        )
