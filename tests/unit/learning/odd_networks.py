"""Networks that DP-SGD has to take or to refuse: small modules that are odd in one way each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from typing_extensions import override

WIDTH = 6
CLASSES = 3

Forward = Callable[[Tensor], Tensor]


@contextmanager
def ignored_warnings() -> Iterator[None]:
    """What PyTorch warns of, and people have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def deprecated_norm(norm: Callable[..., nn.Module], layer: nn.Module) -> nn.Module:
    with ignored_warnings():
        return norm(layer)


class Apply(nn.Module):
    """One line of a forward pass."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def sequential_network(*middle: nn.Module, width: int = 8) -> nn.Module:
    """Modules between two linear layers, (n, 6) to (n, 3)."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, width), *middle, nn.Linear(width, CLASSES))


def line(function: Forward) -> nn.Module:
    return sequential_network(Apply(function), nn.ReLU())


class Attention(nn.Module):
    """Each example attends to all others of its batch."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.T).softmax(dim=1) @ x


class Gate(nn.Module):
    """A branch over the batch, behind a factor that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    @override
    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * x.mean(0, keepdim=True)


class Previous(nn.Module):
    """Adds the mean of the batch before, in an attribute that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Tensor | None = None

    @override
    def forward(self, x: Tensor) -> Tensor:
        before, self.before = self.before, x.detach().mean(0)
        return x if before is None else x + before


class InEvaluation(nn.Module):
    @override
    def forward(self, x: Tensor) -> Tensor:
        return x if self.training else x - x.mean(0)


class Counter(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @override
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class Sequences(nn.Module):
    """(n, 6) as sequences of six numbers through a recurrent network."""

    def __init__(self, kind: type[nn.Module], batch_first: bool = True) -> None:
        super().__init__()
        self.recurrent: Any = kind(2, 4, batch_first=batch_first, num_layers=2, dropout=0.3)
        self.out = nn.Linear(4, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.recurrent(x.reshape(len(x), 3, 2))[0]
        logits: Tensor = self.out(outputs[:, -1])
        return logits


class Attending(nn.Module):
    """Attention over the numbers of an example."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(1, 4), nn.Linear(4, CLASSES)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.1)

    @override
    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.unsqueeze(-1))
        logits: Tensor = self.out(self.attention(h, h, h, need_weights=False)[0].mean(1))
        return logits


class Tokens(nn.Module):
    """Codes in a table, through an embedding."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(4, 5, **given), nn.Linear(5, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.embed(x.long().clamp(0, 3)).mean(1))
        return logits


class MixedCodesNetwork(nn.Module):
    """Codes that see the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.centre = Tokens(), Apply(lambda x: x - x.mean(0))

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.centre(self.tokens(x))
        return logits


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(WIDTH, CLASSES), nn.Parameter(torch.tensor(0.3))

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x) * self.scale.exp()
        return logits


class TiedNetwork(nn.Module):
    """Two layers with one weight, and one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, CLASSES),
        )
        self.two.weight = self.one.weight

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.two(self.one(self.one(x).tanh()).tanh()))
        return logits


class UnusedLayerNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.nobody = nn.Linear(WIDTH, CLASSES), nn.Linear(2, 2)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x)
        return logits


class CubeFunction(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    @override
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


def cubed_tensor(x: Tensor) -> Tensor:
    apply: Any = CubeFunction.apply
    y: Tensor = apply(x)
    return y


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES).to(torch.bfloat16)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.to(torch.bfloat16)).float()
        return logits


class FrozenNormNetwork(nn.Module):
    """BatchNorm that stays in evaluation mode: a fixed scale."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)

    @override
    def train(self, mode: bool = True) -> FrozenNormNetwork:
        super().train(mode)
        self.norm.eval()
        return self

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.norm(x))
        return logits


class Outputs(nn.Module):
    def __init__(self, centred: bool = False) -> None:
        super().__init__()
        self.layer, self.centred = nn.Linear(WIDTH, CLASSES), centred

    @override
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.layer(x)
        return {"scale": x.new_ones(()), "logits": y - y.mean(0) if self.centred else y}


class Pictures(nn.Module):
    """(n, 6) as pictures of two channels."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Conv1d(2, 4, 2), norm, nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8, CLASSES)
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.reshape(len(x), 2, 3))
        return logits


class ScriptedNetwork(nn.Module):
    """A scripted layer, of whose modules hooks know nothing, inside of a network."""

    def __init__(self) -> None:
        super().__init__()
        with ignored_warnings():
            trace: Any = torch.jit.trace
            self.inside: Any = trace(sequential_network(nn.ReLU()), torch.rand(2, WIDTH))

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inside(x)
        return logits


def shuffled_mixup(x: Tensor) -> Tensor:
    """Mixup inside of a network."""
    return 0.8 * x + 0.2 * x[torch.randperm(len(x))]


def dropped_examples(x: Tensor) -> Tensor:
    """Whole examples are dropped, as by stochastic depth."""
    return x * (torch.rand(len(x), 1) < 0.8) / 0.8


def without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        mean = x.mean(0)
    return x - mean


MIXING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "BatchNorm1d": (lambda: sequential_network(nn.BatchNorm1d(8)), r"module 1 \(BatchNorm1d\)"),
    "BatchNorm of pictures": (lambda: Pictures(nn.BatchNorm1d(4)), r"module net\.1 \(BatchNorm1d\)"),
    "functional batch norm": (
        lambda: line(lambda x: functional.batch_norm(x, None, None, training=True)),
        r"module 1 \(Apply\)",
    ),
    "mean taken off": (lambda: line(lambda x: x - x.mean(0, keepdim=True)), r"module 1 \(Apply\)"),
    "mean without gradient": (lambda: line(without_gradient), r"module 1 \(Apply\)"),
    "a hundredth of the mean": (lambda: line(lambda x: x - 0.01 * x.mean(0)), r"module 1 \(Apply\)"),
    "attention over the batch": (lambda: sequential_network(Attention()), r"module 1 \(Attention\)"),
    "mixup": (lambda: line(shuffled_mixup), r"module 1 \(Apply\)"),
    "a gate that is closed": (lambda: sequential_network(Gate()), r"module 1 \(Gate\)"),
    "time in place of examples": (
        lambda: Sequences(nn.LSTM, batch_first=False),
        r"module recurrent \(LSTM\)",
    ),
    "only in evaluation mode": (lambda: sequential_network(InEvaluation()), r"module 1 \(InEvaluation\)"),
    "codes": (MixedCodesNetwork, r"module centre \(Apply\)"),
    "dict outputs": (lambda: Outputs(centred=True), r"the network \(Outputs\)"),
    "the batch's size": (lambda: line(lambda x: x / len(x)), r"another output alone"),
    "the place in the batch": (
        lambda: line(lambda x: x * torch.arange(1, len(x) + 1)[:, None]),
        r"in another place",
    ),
    "no single example": (lambda: line(lambda x: x[: len(x) // 2].repeat(2, 1)), "module 1"),
    "the batch before": (
        lambda: sequential_network(Previous()),
        "keeps something of them from one batch to the next",
    ),
    "spectral_norm": (
        lambda: sequential_network(parametrizations.spectral_norm(nn.Linear(8, 8))),
        r"tensor '1\..*_[uv]'",
    ),
    "old spectral_norm": (
        lambda: sequential_network(deprecated_norm(spectral_norm, nn.Linear(8, 8))),
        r"tensor '1\.weight_[uv]'",
    ),
    "a counter": (lambda: sequential_network(Counter()), r"tensor '1\.calls'"),
    "running statistics": (
        lambda: Pictures(nn.InstanceNorm1d(4, track_running_stats=True)),
        r"tensor 'net\.1\.running_mean'",
    ),
    "embedding with a largest norm": (lambda: Tokens(max_norm=0.1), r"tensor 'embed\.weight'"),
    "cut off": (
        lambda: line(lambda x: x).requires_grad_(False),
        "no parameter of the network has a part in the loss",
    ),
}
"""What has no gradients of single examples: a network, and a part of what is said of it."""

SEPARABLE_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: sequential_network(nn.ReLU()),
    "LayerNorm": lambda: sequential_network(nn.LayerNorm(8), nn.Dropout(0.5)),
    "GroupNorm": lambda: Pictures(nn.GroupNorm(2, 4)),
    "InstanceNorm": lambda: Pictures(nn.InstanceNorm1d(4, affine=True)),
    "functional dropout": lambda: line(lambda x: functional.dropout(x, 0.5)),
    "stochastic depth": lambda: line(dropped_examples),
    "noise": lambda: line(lambda x: x + torch.randn_like(x) * torch.empty_like(x).uniform_(1, 2)),
    "BatchNorm that is frozen": FrozenNormNetwork,
    "GRU": lambda: Sequences(nn.GRU),
    "LSTM": lambda: Sequences(nn.LSTM),
    "attention": Attending,
    "transformer": lambda: sequential_network(
        Apply(lambda x: x.reshape(len(x), 2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        nn.Flatten(),
    ),
    "embedding": Tokens,
    "sparse embedding": lambda: Tokens(sparse=True),
    "a parameter without dimensions": Scale,
    "tied": TiedNetwork,
    "old weight_norm": lambda: sequential_network(deprecated_norm(weight_norm, nn.Linear(8, 8)), nn.Tanh()),
    "weight_norm": lambda: sequential_network(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh()),
    "a parameter that nothing uses": UnusedLayerNetwork,
    "own gradient": lambda: line(cubed_tensor),
    "half precision": Halves,
    "scripted": ScriptedNetwork,
    "compiled": lambda: torch.compile(sequential_network(nn.ReLU()), backend="eager"),  # type: ignore[dict-item,return-value]
    "checkpointed": lambda: sequential_network(
        Apply(lambda x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False))
    ),
}
"""What takes each example by itself."""
