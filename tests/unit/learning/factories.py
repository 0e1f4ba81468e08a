"""Networks as a job's own package would bring them, good and bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from typing_extensions import override

Shape = tuple[int, ...]


def good_network(input_shape: Shape, classes: int, width: int = 7) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], width), classifier=nn.Linear(width, classes))


def no_encoder(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], classes)


def wrong_classes(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], 3), classifier=nn.Linear(3, classes + 1))


def wrong_width(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0], 3), classifier=nn.Linear(4, classes))


def wrong_input(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.Linear(input_shape[0] + 1, 3), classifier=nn.Linear(3, classes))


def failing(input_shape: Shape, classes: int) -> SimpleNamespace:
    raise RuntimeError(f"no weights for {classes} classes of {input_shape}")


def leaving(input_shape: Shape, classes: int) -> SimpleNamespace:
    raise SystemExit(0)


class Leaving(nn.Module):
    """An encoder that ends the process where it is called."""

    @override
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        raise SystemExit(0)


def leaving_later(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=Leaving(), classifier=nn.Linear(3, classes))


def bfloat16(input_shape: Shape, classes: int) -> SimpleNamespace:
    encoder = nn.Linear(input_shape[0], 3, dtype=torch.bfloat16)
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(3, classes))


def huge_network(input_shape: Shape, classes: int) -> SimpleNamespace:
    with torch.device("meta"):
        return SimpleNamespace(
            encoder=nn.Linear(input_shape[0], 1 << 38), classifier=nn.Linear(1 << 38, classes)
        )


def wide_network(input_shape: tuple[int, ...], classes: int, width: int) -> nn.Module:
    """A network as wide as its configuration says."""
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.Linear(width, classes))


class Causal(nn.Module):
    """Attention of each position to itself and those before it, with a mask in the state as many write it."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x.unsqueeze(-1))
        weights = (h @ h.transpose(1, 2) + self.get_buffer("mask")).softmax(-1)
        means: torch.Tensor = (weights @ h).mean(1)
        return means


def causal(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=Causal(input_shape[0]), classifier=nn.Linear(4, classes))


class Ranging(nn.Module):
    """Notes the least value that it saw, as observers for quantisation do: infinity before the first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.tensor(float("inf")))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            least = self.get_buffer("least")
            least.copy_(torch.minimum(least, x.min().detach()))
        return x


def ranging(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(Ranging(), nn.Linear(input_shape[0], classes))


def undefined_weight(input_shape: Shape, classes: int) -> nn.Module:
    layer = nn.Linear(input_shape[0], classes)
    nn.init.constant_(layer.bias, float("nan"))
    return layer


class OddOutputs(nn.Module):
    """A linear layer whose output is wrapped: always, or in training mode alone."""

    def __init__(self, layer: nn.Module, wrap: Callable[[torch.Tensor], object], only_training: bool) -> None:
        super().__init__()
        self.layer, self.wrap, self.only_training = layer, wrap, only_training

    @override
    def forward(self, x: torch.Tensor) -> object:
        y = self.layer(x)
        return self.wrap(y) if self.training or not self.only_training else y


@dataclass
class Prediction:
    logits: torch.Tensor
    hidden: torch.Tensor


OUTPUTS: dict[str, Callable[[torch.Tensor], object]] = {
    "dict": lambda y: {"logits": y},
    "tuple": lambda y: (y, y),
    "dataclass": lambda y: Prediction(y, y),
    "none": lambda y: None,
    "numpy": lambda y: y.detach().numpy(),
    "short": lambda y: y[:, :-1],
    "whole": lambda y: y.argmax(dim=1, keepdim=True).expand_as(y),
}


def odd_outputs(input_shape: Shape, classes: int, kind: str, only_training: bool = False) -> nn.Module:
    return OddOutputs(nn.Linear(input_shape[0], classes), OUTPUTS[kind], only_training)


def odd_features(input_shape: Shape, classes: int) -> SimpleNamespace:
    encoder = OddOutputs(nn.Linear(input_shape[0], 3), OUTPUTS["tuple"], only_training=True)
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(3, classes))


class Crowd(nn.Module):
    """Needs as many examples in training as the job's batches have."""

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.examples = examples

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) < self.examples:
            raise ValueError(f"fewer than {self.examples} examples")
        return x


def crowded_network(input_shape: Shape, classes: int, examples: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(input_shape[0]), Crowd(examples), nn.Linear(input_shape[0], classes))


def lazy_network(input_shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(classes))


def lazy_parts(input_shape: Shape, classes: int) -> SimpleNamespace:
    return SimpleNamespace(encoder=nn.LazyLinear(5), classifier=nn.LazyLinear(classes))


def half_lazy_network(input_shape: Shape, classes: int) -> nn.Module:
    """Has a lazy layer that its forward pass does not call."""
    network = nn.Linear(input_shape[0], classes)
    network.add_module("head", nn.LazyLinear(classes))
    return network


def hook_state(module: Any, hook: Callable[..., None]) -> None:
    """Have a module's state go through a hook, whose registration has no types."""
    module.register_state_dict_post_hook(hook)


def rename_state(module: nn.Module, old: str, new: str) -> None:
    """Have the state of a module say `new` where the names of its parameters say `old`."""

    def shorten(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, __: object) -> None:
        for name in [name for name in state if name.startswith(prefix + old)]:
            state[prefix + new + name.removeprefix(prefix + old)] = state.pop(name)

    hook_state(module, shorten)


def renamed_network(input_shape: Shape, classes: int, renamed: bool = True) -> nn.Module:
    """Two layers and BatchNorm, with shorter names in its state where asked."""
    network = nn.Sequential()
    inner = nn.Sequential(nn.Linear(input_shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes))
    network.add_module("inner", inner)
    if renamed:
        rename_state(network, "inner.", "")
    return network


def renamed_parts(input_shape: Shape, classes: int, renamed: bool = True) -> SimpleNamespace:
    """An encoder with other names in its state where asked."""
    encoder = nn.Sequential(nn.Linear(input_shape[0], 5), nn.ReLU())
    if renamed:
        rename_state(encoder, "0.", "first.")
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(5, classes))


def copied_state(input_shape: Shape, classes: int) -> nn.Module:
    """Its state has copies of its parameters, into which nothing can be loaded."""

    def copy_tensors(_: nn.Module, state: dict[str, torch.Tensor], __: str, ___: object) -> None:
        state.update({name: tensor.clone() for name, tensor in state.items()})

    network = nn.Linear(input_shape[0], classes)
    hook_state(network, copy_tensors)
    return network


def failing_state(input_shape: Shape, classes: int) -> nn.Module:
    """Its state cannot be had."""

    def fail(*_: object) -> None:
        raise RuntimeError("no state today")

    network = nn.Linear(input_shape[0], classes)
    hook_state(network, fail)
    return network


def short_state(input_shape: Shape, classes: int, frozen: bool = False) -> nn.Module:
    """A parameter that its state leaves out, which may be one that does not learn."""
    network = nn.Linear(input_shape[0], classes)
    network.bias.requires_grad_(not frozen)

    def drop_bias(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, __: object) -> None:
        del state[prefix + "bias"]

    hook_state(network, drop_bias)
    return network


def sparse_network(
    input_shape: Shape, classes: int, sparse: bool = True, vocabulary: int = 50
) -> SimpleNamespace:
    """Features of six numbers as words of a vocabulary, whose embedding has sparse gradients where asked."""
    return SimpleNamespace(encoder=_Words(vocabulary, sparse), classifier=nn.Linear(4, classes))


class _Words(nn.Module):
    def __init__(self, vocabulary: int, sparse: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 4, sparse=sparse)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = ((x + 2) * 10).long().clamp(0, self.embed.num_embeddings - 1)
        return torch.as_tensor(self.embed(words)).mean(dim=1)
