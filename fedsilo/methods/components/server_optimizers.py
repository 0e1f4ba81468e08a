"""Optimisers of the server: it steps the model along the mean change that the silos made of it.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2. The change Delta = sum over k of p_k (w_k - w)
is the negative of a gradient as an optimiser knows it. Only learned tensors are stepped: BatchNorm's statistics are
averaged and have no moments. All are functions of trees, in the tensors' own type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedsilo.methods.components.buffers import is_learned
from fedsilo.methods.state import Tree

AdaptiveRule = Literal["adam", "yogi", "adagrad"]


def change(old: Mapping[str, np.ndarray], mean: Mapping[str, np.ndarray]) -> Tree:
    """Delta of every learned tensor."""
    return {name: mean[name] - w for name, w in old.items() if is_learned(name, w)}


def apply_step(
    old: Mapping[str, np.ndarray],
    mean: Mapping[str, np.ndarray],
    step: Mapping[str, np.ndarray],
    rate: float = 1.0,
) -> Tree:
    """w + rate times its step, and the mean of every tensor that has none."""
    return {name: w + rate * step[name] if name in step else mean[name] for name, w in old.items()}


def moments(model: Mapping[str, np.ndarray], value: float = 0.0) -> Tree:
    """A moment of every learned tensor, before the first round."""
    return {name: np.full_like(w, value) for name, w in model.items() if is_learned(name, w)}


def moment(
    before: Mapping[str, np.ndarray], delta: Mapping[str, np.ndarray], beta: float, damping: float = 0.0
) -> Tree:
    """beta times the moment before, and (1 - damping) Delta."""
    return {name: beta * before[name] + (1 - damping) * moved for name, moved in delta.items()}


def second_moment(
    before: Mapping[str, np.ndarray], delta: Mapping[str, np.ndarray], rule: AdaptiveRule, beta: float
) -> Tree:
    """v of the squared changes, Algorithm 2.

    :param rule: adagrad: v + Delta^2. adam: beta v + (1 - beta) Delta^2. yogi: v - (1 - beta) Delta^2 times the sign
        of v - Delta^2.
    """
    squares = {name: np.square(moved) for name, moved in delta.items()}
    match rule:
        case "adagrad":
            return {name: before[name] + square for name, square in squares.items()}
        case "adam":
            return moment(before, squares, beta, damping=beta)
        case "yogi":
            return {
                name: before[name] - (1 - beta) * square * np.sign(before[name] - square)
                for name, square in squares.items()
            }


def adaptive_step(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], tau: float) -> Tree:
    """m / (sqrt(v) + tau), without a correction of the bias."""
    return {name: m / (np.sqrt(second[name]) + tau) for name, m in first.items()}
