"""Compact convolutional transformer, CCT-7/3x1 (Hassani et al., "Escaping the Big Data Paradigm with Compact
Transformers", 2021): a convolution makes tokens of an image, and attention pools what seven layers make of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from fedsilo.learning.catalogue import ArchitectureConfig
from fedsilo.learning.networks.layers import Parts, Shape

WIDTH, HEADS, LAYERS = 256, 4, 7
MLP_WIDTH = 2 * WIDTH
ATTENTION_DROPOUT = 0.1
STOCHASTIC_DEPTH = 0.1
"""Stochastic depth of the last layer; the others' grow to it linearly from 0."""


def cct(shape: Shape, classes: int, config: ArchitectureConfig) -> Parts:
    """FedBR's CCT for CIFAR: feature 256.

    Initial weights as released: linear layers and positions truncated normal of 0.02, the tokenizer's convolution
    Kaiming normal.
    """
    encoder = CompactTransformer(shape)
    classifier = nn.Linear(WIDTH, classes, bias=config.bias)
    for layer in (*encoder.modules(), classifier):
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return encoder, classifier


class CompactTransformer(nn.Module):
    """Tokenizer, learned positions, transformer layers, and one feature for all tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokenizer = nn.Sequential(
            nn.Conv2d(shape[0], WIDTH, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Flatten(2),
        )
        tokens = ((shape[1] + 1) // 2) * ((shape[2] + 1) // 2)
        self.positions = nn.Parameter(torch.zeros(1, tokens, WIDTH))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.layers = nn.Sequential(
            *(AttentionBlock(STOCHASTIC_DEPTH * n / (LAYERS - 1)) for n in range(LAYERS))
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.pool = nn.Linear(WIDTH, 1)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) -> (n, 256)."""
        tokens = self.tokenizer(x).transpose(1, 2) + self.positions
        tokens = self.norm(self.layers(tokens))
        weights = self.pool(tokens).softmax(dim=1)
        feature: Tensor = (weights * tokens).sum(dim=1)
        return feature


class AttentionBlock(nn.Module):
    """Attention and a two-layer perceptron, each behind LayerNorm and with a residual connection.

    :param skip: probability with which a sample skips a branch while training (stochastic depth).
    """

    def __init__(self, skip: float) -> None:
        super().__init__()
        self.skip = skip
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(ATTENTION_DROPOUT)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, MLP_WIDTH), nn.GELU(), nn.Linear(MLP_WIDTH, WIDTH))

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, 256) -> the same shape."""
        x = x + self._drop_path(self._attention(self.norm1(x)))
        return x + self._drop_path(self.mlp(self.norm2(x)))

    def _attention(self, x: Tensor) -> Tensor:
        # Written out: PyTorch's fused attention has no deterministic gradient on every GPU.
        n, tokens, _ = x.shape
        parts = (
            self.queries_keys_values(x).reshape(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        )
        queries, keys, values = parts
        scores = queries @ keys.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
        mixed = self.dropout(scores.softmax(dim=-1)) @ values
        attended: Tensor = self.out(mixed.transpose(1, 2).reshape(n, tokens, WIDTH))
        return attended

    def _drop_path(self, branch: Tensor) -> Tensor:
        """The branch, without some samples while training, and the others scaled so that the mean stays."""
        if not self.training or self.skip == 0:
            return branch
        kept = torch.rand(len(branch), 1, 1, device=branch.device) >= self.skip
        return branch * kept / (1 - self.skip)
