"""What a task hands out as the job says."""

from __future__ import annotations

from fedsilo.transforms.learned import is_learned, learned_names
from fedsilo.wire import Contract, ModelSignature


def learned_tensors(signature: ModelSignature, contract: Contract) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a task of this contract hands out as the job says."""
    own = {t.name: t.shape for t in signature.tensors if is_learned(t.name, t.dtype)}
    learned = learned_names(contract)
    return own | {block.name: block.shape for block in contract.tensors if block.name in learned}
