"""The three parts of a model: tensors that are shared, frozen or local, see `spec.model.parameters`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from torch import nn

from fedsilo.api.parameters import ParametersSpec
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.wire.tensors import ModelSignature, Tree, raw_bytes

PARTS = ("shared", "frozen", "local")


@dataclass(frozen=True)
class Parts:
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

    def whole(self, *trees: Mapping[str, np.ndarray]) -> Tree:
        """All tensors in the model's order, each from the last of the trees that has it."""
        return {name: next(tree[name] for tree in reversed(trees) if name in tree) for name in self.names}


def parts_of(spec: ParametersSpec | None, model: nn.Module) -> Parts | None:
    """The parts of a job's model; None where all of it is shared.

    :raises ManifestInvalid: naming a pattern that matches nothing, or a tensor that is of two parts.
    """
    if spec is None:
        return None
    state = model.state_dict(keep_vars=True)
    names = tuple(state)
    named = {part: set(_matching(part, getattr(spec, part), names)) for part in PARTS}
    for number, part in enumerate(PARTS):
        for other in PARTS[number + 1 :]:
            if both := sorted(named[part] & named[other]):
                raise ManifestInvalid(
                    f"spec.model.parameters: tensor {both[0]!r} is named in {part} and in {other}; narrow the patterns"
                )
    rest = set(names) - set().union(*named.values())
    named["frozen" if spec.shared else "shared"] |= rest
    if not any(name in named["shared"] for name, _ in model.named_parameters(remove_duplicate=False)):
        raise ManifestInvalid(
            "spec.model.parameters: no parameter is shared, so that silos would learn nothing from each other; leave "
            "some to shared"
        )
    parts = Parts(names, *(frozenset(named[part]) for part in PARTS))
    _require_whole_tensors(parts, state)
    return parts


def freeze(model: nn.Module, frozen: frozenset[str]) -> None:
    """Keep training from changing these tensors.

    Parameters get no gradient. A module with a frozen buffer, such as BatchNorm's running statistics, stays in
    evaluation mode, since a forward pass in training mode would change it.
    """
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in frozen:
            parameter.requires_grad_(False)
    for prefix, module in model.named_modules():
        buffers = (f"{prefix}.{name}".lstrip(".") for name, _ in module.named_buffers(recurse=False))
        if any(name in frozen for name in buffers):
            _stay_in_evaluation(module)


def changed_tensors(names: Sequence[str], before: Mapping[str, np.ndarray], after: Tree) -> Iterator[str]:
    """Names of tensors that are not the same to the bit."""
    for name in names:
        one, other = before[name], after[name]
        same = one.shape == other.shape and one.dtype == other.dtype
        if not same or not np.array_equal(raw_bytes(one), raw_bytes(other)):
            yield name


def _matching(part: str, patterns: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for position, pattern in enumerate(patterns):
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            near = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            raise ManifestInvalid(
                f"spec.model.parameters.{part}[{position}]: {pattern!r}: matches no tensor of the model; the "
                f"nearest of its {len(names)} is {near[0] if near else 'none'}"
            )
        yield from matching


def _require_whole_tensors(parts: Parts, state: Mapping[str, object]) -> None:
    """Check that a tensor with two names, such as tied embeddings, is not of two parts.

    :raises ManifestInvalid: naming both.
    """
    seen: dict[int, str] = {}
    for name, tensor in state.items():
        first = seen.setdefault(id(tensor), name)
        for part in PARTS:
            if (name in getattr(parts, part)) != (first in getattr(parts, part)):
                raise ManifestInvalid(
                    f"spec.model.parameters: {first!r} and {name!r} are one tensor and stand in two parts; name both "
                    f"in {part}, or neither"
                )


def _stay_in_evaluation(module: nn.Module) -> None:
    def train(mode: bool = True) -> nn.Module:
        nn.Module.train(module, mode)  # modules below follow as they are asked to
        module.training = False
        return module

    module.train = train  # type: ignore[method-assign]
    module.training = False


def require_unchanged(parts: Parts, before: Mapping[str, np.ndarray], after: Tree) -> None:
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
