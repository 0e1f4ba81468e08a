"""Whether a network takes each example by itself: its outputs for one are compared alone and in company of others.

With differential privacy of examples nothing that is computed of one may depend on another. Which layers do that, names
do not tell: a batch's mean is taken off in one line of a forward pass. So the network computes made-up inputs, in
training and in evaluation mode, with its weights as they are and moved a little, so that a gate which begins at zero is
open: one example beside some others, again, beside yet others, in another place, and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedsilo.api.python_import import error_summary, place_of
from fedsilo.errors import MethodError
from fedsilo.learning.fixed_draws import fixed_draws
from fedsilo.learning.gradients import Loss
from fedsilo.learning.held_state import HeldState
from fedsilo.learning.single_gradients import FIELD, SingleGradients, disable_compilation, has_halves

COMPANY = 4
"""Examples of a batch."""

PLACE = 2
"""Where in it the example is that is looked at: with others before it, and after it."""

NEEDED_EXAMPLES = 2 * COMPANY - 1
"""Examples that two batches with one of them in common are made of."""

OTHER_BATCH = [*range(COMPANY, COMPANY + PLACE), PLACE, *range(COMPANY + PLACE, NEEDED_EXAMPLES)]
"""A batch that has the example in the same place, and nothing else of the first."""

SAME_SIZE_SHARE = 1e-4
"""Largest difference of an output from batches of one size, over the largest output, that is rounding."""

OTHER_SIZE_SHARE = 1e-3
"""Largest difference from batches of other sizes or other places in them; `OTHER_SIZE_HALVES` in half precision."""

OTHER_SIZE_HALVES = 0.05

PERTURBATION_DEVIATION = 0.05
"""Deviation of what is added to weights, and of the factor that they are stretched by."""

Tensors = list[Tensor]


def made_up_inputs(like: Tensor, tokens: int | None) -> list[Tensor]:
    """Inputs that no silo has, (`NEEDED`, *shape) each: numbers from 0 to 1, and zeros and ones, which may be codes.

    :param like: (n, *shape), for shape and dtype.
    :param tokens: how many there are, where inputs are tokens.
    """
    generator, shape = torch.Generator().manual_seed(0), (NEEDED_EXAMPLES, *like.shape[1:])
    codes = torch.randint(0, tokens or 2, shape, generator=generator)
    if not like.is_floating_point():
        return [codes.to(like.dtype)]
    return [torch.rand(shape, generator=generator).to(like.dtype), codes.to(like.dtype)]


def require_apart(model: nn.Module, inputs: Sequence[Tensor], labels: Tensor, loss: Loss) -> str:
    """Refuse a network, or a loss, in which examples see each other or that keeps something of them.

    Returns how gradients of its single examples are had, in words.

    The network has the same tensors afterwards, and is in training mode.

    :param inputs: as of `made_up_inputs`; those on which a comparison fails are passed over, if it has others.
    :param labels: (`NEEDED`, ...) targets.
    :raises MethodError: naming module or tensor, and what may stand in its place; or a comparison was not made.
    """
    held, chosen = HeldState(model), ""
    # All outputs first: they tell which module it is.
    compared: dict[str, Callable[[_Trial], str | None]] = {
        "in training mode": _Trial.outputs_in_training,
        "in evaluation mode": _Trial.outputs_in_evaluation,
        "for the gradients of its loss": _Trial.gradients,
    }
    with disable_compilation():
        for (how, compare), moved in product(compared.items(), (False, True)):
            failures = list[Exception]()
            for features in inputs:
                try:
                    if moved:
                        _move(model)
                    chosen = compare(_Trial(model, features, labels, loss, moved)) or chosen
                except MethodError:
                    raise
                except Exception as error:  # whatever the network raises
                    failures.append(error)
                finally:
                    held.restore()
                    model.train()
            if len(failures) == len(inputs):
                raise _never_computed(how, moved, inputs, failures[0]) from failures[0]
    return chosen


def _never_computed(how: str, moved: bool, inputs: Sequence[Tensor], failure: Exception) -> MethodError:
    """What to say of a comparison that was made on no inputs at all."""
    weights = " and with its weights moved a little" if moved else ""
    return MethodError(
        f"{FIELD}: the network fails on made-up inputs of shape {list(inputs[0].shape)}, on which it is tried before "
        f"round 1, {how}{weights}: {error_summary(failure)}{place_of(failure, (__file__,))}; have it take numbers from "
        "0 to 1, in training and in evaluation mode"
    )


@dataclass
class _Trial:
    """One kind of inputs, and the weights that the network has.

    :param moved: whether these are not its own, so that only outputs of batches of one size are compared: what rounding
        does to outputs under foreign weights has no bound.
    """

    model: nn.Module
    features: Tensor
    labels: Tensor
    loss: Loss
    moved: bool
    changed: str | None = None

    def outputs_in_training(self) -> None:
        """Compare outputs in training mode.

        :raises MethodError: examples see each other, the network keeps something of them, or takes no single one.
        """
        self.model.train()
        self._compare()

    def outputs_in_evaluation(self) -> None:
        """Compare outputs in evaluation mode.

        :raises MethodError: examples see each other, the network keeps something of them, or takes no single one.
        """
        self.model.eval()
        self._compare()

    def gradients(self) -> str:
        """Compare the gradient of a batch with those of its examples, which is where a loss mixes them.

        Returns how gradients of single examples are had.

        :raises MethodError: it does, or there is none.
        """
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        with SingleGradients(self.model, trained, self.loss) as single:
            return single.choose(self.features, self.labels)

    def _compare(self) -> None:
        first, others = torch.arange(COMPANY), torch.tensor(OTHER_BATCH)
        together, again = self._batch_output(first), self._batch_output(first)
        if not _alike(together, again, SAME_SIZE_SHARE):
            raise MethodError(self._remembers)
        if not _alike(_example(together), _example(self._batch_output(others)), SAME_SIZE_SHARE):
            raise MethodError(self._mixes(first, others))
        if not _alike(together, self._batch_output(first), SAME_SIZE_SHARE):
            raise MethodError(self._remembers)
        if self.changed is not None:
            raise MethodError(
                f"{FIELD}: tensor {self.changed!r}: the network changes it when it computes, as spectral_norm, "
                "statistics of batches and an embedding's max_norm do, so that it would follow from examples without "
                "noise; use a network that leaves its tensors to the optimiser"
            )
        if self.moved:
            return
        tolerance = OTHER_SIZE_HALVES if has_halves(self.model.parameters()) else OTHER_SIZE_SHARE
        found, alone = _example(together), self._single_output(first[PLACE : PLACE + 1])
        elsewhere = _example(self._batch_output(first.flip(0)), COMPANY - 1 - PLACE)
        if not (_alike(found, elsewhere, tolerance) and _alike(found, alone, tolerance)):
            raise MethodError(
                f"{FIELD}: {self._network} gives an example another output alone than in a batch, or in another place "
                "of it, so that no example has a gradient of its own; use a network that takes each by itself"
            )

    def _batch_output(self, places: Tensor) -> Tensors:
        """What the network gives for a batch of these examples, with the tensors that it had before."""
        held = HeldState(self.model)
        with fixed_draws(self.features.device):
            found = _copies(self.model(self.features[places]))
        self.changed = self.changed or held.changed_tensor
        held.restore()
        return found

    def _single_output(self, place: Tensor) -> Tensors:
        try:
            return _example(self._batch_output(place), 0, 1)
        except Exception as failure:
            raise MethodError(
                f"{FIELD}: {self._network} fails on a batch of a single example: {error_summary(failure)}"
                f"{place_of(failure, (__file__,))}; use a network that takes each example by itself"
            ) from failure

    @property
    def _network(self) -> str:
        return f"the network ({type(self.model).__name__})"

    @property
    def _remembers(self) -> str:
        return (
            f"{FIELD}: {self._network} gives other outputs for the same examples when it computes them again, so that "
            "it keeps something of them from one batch to the next; have it keep nothing"
        )

    def _mixes(self, first: Tensor, others: Tensor) -> str:
        """What to say of outputs that depend on the other examples, with the module that first gives such."""
        where = self._network
        for one, other in zip(self._calls(first), self._calls(others), strict=False):
            same_inputs = _alike(_example(one.inputs), _example(other.inputs), SAME_SIZE_SHARE)
            same_outputs = _alike(_example(one.outputs), _example(other.outputs), SAME_SIZE_SHARE)
            if one.name and same_inputs and not same_outputs:
                where = f"module {one.name} ({one.kind})"
                break
        return (
            f"{FIELD}: {where} gives an example another output beside other examples, so that no example has a "
            "gradient of its own; replace what it takes over the batch, such as BatchNorm by GroupNorm, or use a "
            "network without it"
        )

    def _calls(self, places: Tensor) -> list[_Call]:
        """Calls of modules, those inside of others first."""
        calls, held = list[_Call](), HeldState(self.model)
        with ExitStack() as stack, fixed_draws(self.features.device):
            for name, module in self.model.named_modules():

                def note(module: nn.Module, inputs: Any, given: Any, output: Any, name: str = name) -> None:
                    kind = type(module).__name__
                    calls.append(_Call(name, kind, _copies((inputs, given)), _copies(output)))

                stack.callback(module.register_forward_hook(note, with_kwargs=True).remove)
            self.model(self.features[places])
        held.restore()
        return calls


@dataclass(frozen=True)
class _Call:
    """One call of a module: its name and type, and all tensors that it took and gave."""

    name: str
    kind: str
    inputs: Tensors
    outputs: Tensors


def _move(model: nn.Module) -> None:
    """Stretch every weight, and add to it."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                stretch, shift = PERTURBATION_DEVIATION * torch.randn((2, *weight.shape), generator=generator)
                weight.copy_((weight.float().cpu() * (1 + stretch) + shift).to(weight))


def _copies(output: Any) -> Tensors:
    return [each.detach().clone() for each in tree_leaves(output) if isinstance(each, Tensor)]


def _example(tensors: Tensors, place: int = PLACE, size: int = COMPANY) -> Tensors:
    """What a batch of that size has of one example; tensors that are not divided by examples are left out."""
    found = []
    for each in tensors:
        if each.dim() and each.shape[0] and each.shape[0] % size == 0:
            rows = each.shape[0] // size
            found.append(each[place * rows : (place + 1) * rows])
    return found


def _alike(one: Tensors, other: Tensors, tolerance: float) -> bool:
    """Whether they differ by rounding only; what is not finite in both is the same."""
    return len(one) == len(other) and all(
        _near(a.double(), b.double(), tolerance) for a, b in zip(one, other, strict=True)
    )


def _near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape or not torch.equal(one.isfinite(), other.isfinite()):
        return False
    numbers = one.isfinite()
    difference, size = (one - other)[numbers].abs(), one[numbers].abs()
    return not difference.numel() or bool(difference.max() <= tolerance * size.max())
