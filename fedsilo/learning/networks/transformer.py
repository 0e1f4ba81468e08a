"""A transformer over tokens: the next token at each place, or one class for the whole sequence.

Vaswani et al., "Attention Is All You Need", NeurIPS 2017, with normalisation before each part (Radford et al.,
"Language Models are Unsupervised Multitask Learners", 2019), learned places, and no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.learning.catalogue import TransformerConfig
from fedsilo.learning.networks.layers import Parts
from fedsilo.tasks.interface import LearningTask


class TransformerBlock(nn.Module):
    """Attention and perceptron, each added to its input: (n, length, width) -> the same shape."""

    def __init__(self, config: TransformerConfig, causal: bool) -> None:
        super().__init__()
        width = config.width
        self.heads, self.causal = config.heads, causal
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) -> (n, length, width)."""
        n, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=-1)
        q, k, v = (part.reshape(n, length, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.projection(attended.transpose(1, 2).reshape(n, length, width))
        added: Tensor = x + self.perceptron(x)
        return added


class TokenEncoder(nn.Module):
    """Tokens (n, length) -> features (n, length, width), or (n, width) where they are averaged."""

    def __init__(self, vocabulary: int, length: int, config: TransformerConfig, *, averaged: bool) -> None:
        super().__init__()
        self.averaged = averaged
        self.tokens = nn.Embedding(vocabulary, config.width)
        self.places = nn.Parameter(torch.zeros(length, config.width))
        self.blocks = nn.ModuleList(
            TransformerBlock(config, causal=not averaged) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places, std=0.02)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, length) -> (n, length, width) or (n, width)."""
        features: Tensor = self.tokens(x) + self.places
        for block in self.blocks:
            features = block(features)
        features = self.norm(features)
        return features.mean(dim=1) if self.averaged else features


def transformer(task: LearningTask, config: TransformerConfig) -> Parts:
    """Encoder and classifier for a task's tokens."""
    assert task.vocabulary is not None, "check_model has seen to the task"
    averaged = len(task.output_shape) == 1
    encoder = TokenEncoder(task.vocabulary, task.data.input_shape[0], config, averaged=averaged)
    return encoder, nn.Linear(config.width, task.outputs)
