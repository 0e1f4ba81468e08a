"""A network's random draws, made the same for every example, so that its outputs can be compared without chance.

Dropout keeps everything, noise is one number, a permutation turns the order around. What is left that differs from one
batch to another is what the examples do to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from fedsilo.learning.confinement import isolated_torch_state

LEVEL = 0.375
"""What a draw from a normal distribution comes to."""


class _FixedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces what random operators draw, wherever in the network they are called."""

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        """Answer False, since PyTorch would import its compiler to keep it off this class, which takes seconds; none
        compiles here.
        """
        return False

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        fixed = _FIXED_OPERATORS.get(name)
        if fixed is None:
            return func(*_without_dropout(func, args), **kwargs)
        # So that the first number is the same, however many are drawn.
        torch.default_generator.manual_seed(0)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed(0)
        drawn: Tensor = func(*args, **kwargs)
        return fixed(drawn)


def _without_dropout(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of an operator that drops out by itself, such as recurrent networks and attention on a GPU."""
    place = _dropout(func)
    return args if place is None or place >= len(args) else (*args[:place], 0.0, *args[place + 1 :])


@cache
def _dropout(func: Any) -> int | None:
    names = [argument.name for argument in func._schema.arguments]
    return next((names.index(name) for name in ("dropout", "dropout_p") if name in names), None)


def _constant(value: float) -> Callable[[Tensor], Tensor]:
    return lambda drawn: drawn.fill_(value)


def _constant_draw(drawn: Tensor) -> Tensor:
    return drawn.fill_(drawn.flatten()[0].item()) if drawn.numel() else drawn


def _reversed_permutation(drawn: Tensor) -> Tensor:
    return drawn.copy_(torch.arange(len(drawn) - 1, -1, -1, device=drawn.device))


_FIXED_OPERATORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("bernoulli", "bernoulli_"), _constant(1)),
    **dict.fromkeys(("randn", "randn_like", "normal", "normal_"), _constant(LEVEL)),
    **dict.fromkeys(("rand", "rand_like", "uniform", "uniform_"), _constant_draw),
    **dict.fromkeys(("randint", "randint_like", "random_", "exponential_", "geometric_"), _constant_draw),
    **dict.fromkeys(("multinomial", "poisson"), _constant(0)),
    "randperm": _reversed_permutation,
}
"""Random operators of PyTorch, and what stands in for their draws."""


@contextmanager
def fixed_draws(device: torch.device) -> Iterator[None]:
    """Draws of PyTorch are fixed inside; those of NumPy and Python begin with the same seed. Nothing is left of it."""
    with isolated_torch_state(0, device), _FixedDraws():  # type: ignore[no-untyped-call]
        yield
