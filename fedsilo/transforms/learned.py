"""Which tensors of a model may lose precision on their way."""

from __future__ import annotations

from fedsilo.methods.components.buffers import is_statistic
from fedsilo.wire import Contract


def learned_names(contract: Contract) -> frozenset[str]:
    """Names of a model's tensors that may lose precision on their way, without those of a class.

    Every update has them; a tensor of a class may be left out.
    """
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
