"""What clipped gradients of a batch need in memory, layer by layer: hardly more than a plain backward pass."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from fedsilo.learning.layerwise_gradients import LayerwiseGradients
from fedsilo.learning.single_gradients import LAYER_BY_LAYER, SingleGradients

EXAMPLES, CLASSES, SIDE = 32, 3, 6


class HeldBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the tensors that are made inside, as long as anybody holds them.

    :ivar most: at the worst moment.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.most = 0
        self._known: set[int] = set()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {
            each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)
        }
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, Tensor) and each.untyped_storage()._cdata not in given:
                self._note(each.untyped_storage())
        return found

    def _note(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            return
        self._known.add(storage._cdata)
        self.held += storage.nbytes()
        self.most = max(self.most, self.held)
        weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())

    def _forget(self, storage: int, size: int) -> None:
        self._known.discard(storage)
        self.held -= size


class MovedNetwork(nn.Module):
    """Normalisations, and shifts, of which each takes and gives as much as a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv2d(4, 64, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, 64) for _ in range(6))
        self.shifts = nn.ParameterList(nn.Parameter(torch.randn(64, 1, 1)) for _ in range(6))
        self.end, self.out = nn.Conv2d(64, 64, 3, stride=2), nn.Linear(256, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        h = self.start(x)
        for norm, shift in zip(self.norms, self.shifts, strict=True):
            h = torch.tanh(norm(h) + shift)
        logits: Tensor = self.out(self.end(h).flatten(1))
        return logits


def loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(features), labels)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(EXAMPLES, 4, SIDE, SIDE), torch.arange(EXAMPLES) % CLASSES


def test_a_private_pass_holds_the_network_and_what_one_layer_gives_more_than_a_plain_one() -> None:
    torch.manual_seed(0)
    model, (features, labels) = MovedNetwork(), batch()
    trained = list(model.parameters())
    sums = [torch.zeros_like(each) for each in trained]
    with HeldBytes() as plain:
        torch.autograd.backward(loss(model, features, labels))
    with SingleGradients(model, trained, loss) as single:
        assert single.choose(features, labels) == LAYER_BY_LAYER
        with HeldBytes() as private:
            single.add_clipped(sums, features, labels, 0.1)
    network_bytes, layer_bytes = sum(each.nbytes for each in trained), 4 * EXAMPLES * 64 * SIDE**2
    assert private.most <= plain.most + network_bytes + layer_bytes


def test_nothing_of_a_pass_stays() -> None:
    """Also without the collector of cycles, which comes when it wants."""
    torch.manual_seed(0)
    model, (features, labels) = MovedNetwork(), batch()
    gc.disable()
    try:
        with LayerwiseGradients(model, list(model.parameters())) as layerwise, HeldBytes() as held:
            assert layerwise.of(lambda: loss(model, features, labels), EXAMPLES) is not None
            assert held.most > 0
            assert held.held == 0
    finally:
        gc.enable()
