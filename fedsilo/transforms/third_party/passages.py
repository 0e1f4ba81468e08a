"""What each transform of a job does to an update, one after the other: the names that go in and come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedsilo.errors import MethodError, Problem
from fedsilo.methods.state import Tree
from fedsilo.transforms.learned import learned_names
from fedsilo.transforms.third_party.calls import call_package
from fedsilo.transforms.third_party.interface import UpdateTransform
from fedsilo.transforms.third_party.registry import FIELD
from fedsilo.wire import DTYPES, Contract, ExpectedBlock, TensorSpec


@dataclass(frozen=True)
class Passage:
    """One transform in one exchange.

    :param model: the tensors that it is given.
    :param sent: what takes their place.
    """

    transform: UpdateTransform
    model: tuple[TensorSpec, ...]
    sent: tuple[TensorSpec, ...]

    def encode(self, model: Tree, base: Tree, kept: Tree) -> tuple[Tree, Tree]:
        """What a silo sends and keeps.

        :raises MethodError: when that is not what the transform says it sends.
        """
        name = self.transform.name
        found = call_package(
            name, "encode", lambda: self.transform.encode(model, _part_of(self.model, base), kept)
        )
        if not (
            isinstance(found, tuple) and len(found) == 2 and all(isinstance(each, dict) for each in found)
        ):
            raise MethodError(f"transform {name}: encode returned no pair of what is sent and what is kept")
        sent, left = found
        tensors = require_form(name, "encode", sent, self.sent)
        if broken := [key for key, array in tensors.items() if not np.isfinite(array).all()]:
            raise MethodError(f"transform {name}: encode makes NaN or infinity of {broken[0]}")
        return tensors, _require_kept(name, left)

    def decode(self, sent: Tree, base: Tree) -> Tree:
        """The model that comes of what was sent.

        :raises MethodError: when it is not of the names, shapes and types of the model.
        """
        name = self.transform.name
        found = call_package(name, "decode", lambda: self.transform.decode(sent, _part_of(self.model, base)))
        return require_form(name, "decode", found, self.model)


def passages_of(transforms: Sequence[UpdateTransform], contract: Contract) -> tuple[Passage, ...]:
    """What each transform does to what this contract asks for; nothing where no tensors of a model are among it.

    A transform is given what the one before it has left as it was.

    :raises MethodError: when nothing is left for one, or it does not say in tensors what is sent.
    """
    learned = learned_names(contract)
    left = {block.name: block.spec for block in contract.blocks if block.name in learned}
    passages: list[Passage] = []
    for transform in transforms if left else ():
        if not left:
            before = passages[-1].transform.name
            raise MethodError(
                f"{FIELD}: {transform.name}: is after {before}, which leaves no tensor of the model as it is; put it "
                "before, or remove it"
            )
        model = tuple(left.values())
        sent = call_package(transform.name, "sends", partial(_sent_specs, transform, model))
        if not all(isinstance(each, TensorSpec) for each in sent):
            raise MethodError(f"transform {transform.name}: sends returned other things than TensorSpec")
        passages.append(Passage(transform, model, sent))
        left = {spec.name: spec for spec in sent if left.get(spec.name) == spec}
    return tuple(passages)


def blocks_of(contract: Contract, passages: Sequence[Passage]) -> tuple[ExpectedBlock, ...]:
    """The blocks of what is sent, in the place of those of the model."""
    blocks = contract.blocks
    for passage in passages:
        taken = {spec.name for spec in passage.model}
        sent = [ExpectedBlock("model", spec.name, spec.shape, spec.dtype) for spec in passage.sent]
        first = next(place for place, block in enumerate(blocks) if block.name in taken)
        rest = [
            [block for block in part if block.name not in taken] for part in (blocks[:first], blocks[first:])
        ]
        blocks = (*rest[0], *sent, *rest[1])
    return blocks


def decoded_tensors(passages: Sequence[Passage], tensors: Mapping[str, np.ndarray], base: Tree) -> Tree:
    """An update's tensors of the model, of which what was sent in their place has become tensors again.

    :param base: what the silo was handed, by the names of the first passage.
    """
    found = dict(tensors)
    for passage in reversed(passages):
        found |= passage.decode({spec.name: found.pop(spec.name) for spec in passage.sent}, base)
    return found


def require_decodable(passages: Sequence[Passage], read: Callable[[str], np.ndarray]) -> None:
    """Return if a finite model comes of what was sent, tried with a base of zeros.

    :param read: contents of a block by its name, flat.
    :raises Problem: `not-finite` or `malformed`.
    """
    base = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in passages[0].model}
    arrived: dict[str, TensorSpec] = {}
    for passage in passages:
        given = {spec.name for spec in passage.model}
        arrived = {name: spec for name, spec in arrived.items() if name not in given}
        arrived |= {spec.name: spec for spec in passage.sent}
    names = ", ".join(passage.transform.name for passage in passages)
    sent = {name: np.array(read(name)).reshape(spec.shape) for name, spec in arrived.items()}
    try:
        found = decoded_tensors(passages, sent, base)
    except MethodError as error:
        raise Problem("malformed", str(error)) from error
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise Problem(
                "not-finite", f"block {name}: transform {names} makes NaN or infinity of what was sent"
            )


def require_form(transform: str, verb: str, found: Tree, expected: Sequence[TensorSpec]) -> Tree:
    """The tensors, where they are those that are expected, in their order.

    :raises MethodError: naming the first that is not.
    """
    arrays: Tree = {}
    for spec in expected:
        array = found.get(spec.name) if isinstance(found, dict) else None
        if not isinstance(array, np.ndarray | np.generic):  # the latter is one number, as `mean` gives it
            raise MethodError(f"transform {transform}: {verb} returned no array {spec.name!r}")
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise MethodError(
                f"transform {transform}: {verb} returned {spec.name} as {array.dtype} of shape {array.shape}; it must "
                f"be {spec.dtype} of shape {spec.shape}"
            )
        arrays[spec.name] = np.asarray(array)
    if more := sorted(found.keys() - {spec.name for spec in expected}):
        raise MethodError(
            f"transform {transform}: {verb} returned {more[0]!r}, which it does not say; leave it out"
        )
    return arrays


def _sent_specs(transform: UpdateTransform, model: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return tuple(transform.sends(model))


def _part_of(model: Sequence[TensorSpec], base: Tree) -> Tree:
    """The named tensors of what the silo was handed, as views that cannot be written to."""
    found = {spec.name: base[spec.name].view() for spec in model}
    for array in found.values():
        array.flags.writeable = False
    return found


def _require_kept(name: str, left: Tree) -> Tree:
    """What a transform keeps in the silo, if it can be kept.

    :raises MethodError: naming a value that is no array of numbers.
    """
    for key, array in left.items():
        if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise MethodError(
                f"transform {name}: encode keeps {key!r} as {kind}; keep NumPy arrays of the types that sends may name"
            )
    return left
