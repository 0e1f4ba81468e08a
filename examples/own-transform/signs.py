"""Signs of a model's change: one bit of each number, and one length of each tensor.

Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018;
with the mean of |d| as length, and what that leaves out added to the next change, as in Karimireddy, Rebjock, Stich,
Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from fedsilo import TensorSpec, TransformConfig, Tree, UpdateTransform

LENGTH = ".length"


class SignsConfig(TransformConfig):
    """What a job may set in the `config` of the transform."""

    feedback: bool = Field(
        default=True, description="Whether silos keep what they leave out for the next round."
    )


class Signs(UpdateTransform):
    """A silo sends sign(d) and mean |d| of each tensor's change d; the aggregator adds their product to the model."""

    name = "signs"
    title = "Signs of the change"
    Config = SignsConfig
    config: SignsConfig

    def sends(self, model: Sequence[TensorSpec]) -> Sequence[TensorSpec]:
        """A length, and eight signs in a byte."""
        lengths = [TensorSpec(tensor.name + LENGTH, (), "float32") for tensor in model]
        return lengths + [TensorSpec(tensor.name, ((tensor.size + 7) // 8,), "uint8") for tensor in model]

    def encode(
        self, model: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]
    ) -> tuple[Tree, Tree]:
        """Lengths and signs, and what they leave out."""
        sent: Tree = {}
        left: Tree = {}
        for name, new in model.items():
            change = new - base[name] + kept.get(name, np.float32(0))
            sent[name + LENGTH] = np.abs(change).mean(dtype=np.float32)
            sent[name] = np.packbits(change >= 0)
            if self.config.feedback:
                left[name] = change - _change(sent, name, change.shape)
        return sent, left

    def decode(self, sent: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]) -> Tree:
        """The model that has changed by length and sign."""
        return {name: old + _change(sent, name, old.shape) for name, old in base.items()}


def _change(sent: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    signs = np.unpackbits(sent[name], count=int(np.prod(shape))).reshape(shape)
    return np.where(signs == 1, sent[name + LENGTH], -sent[name + LENGTH])
