"""Which tensors of a model may lose precision on their way."""

from __future__ import annotations

from fedsilo.methods.building_blocks.buffers import is_statistic
from fedsilo.wire import Contract


def learned_names(contract: Contract) -> frozenset[str]:
    """Tensors of the model that every update has; one of a class may be left out, and is held to its examples."""
    return frozenset(
        block.name
        for block in contract.tensors
        if block.kind == "model" and block.label is None and is_learned(block.name, block.dtype)
    )


def is_learned(name: str, dtype: str) -> bool:
    """Whether a tensor of a model may lose precision on its way.

    BatchNorm's statistics may not: a variance that is off by an error of others could become negative.
    """
    return dtype == "float32" and not is_statistic(name)
