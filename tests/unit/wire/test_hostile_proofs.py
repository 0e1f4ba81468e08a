"""Before a signature is known, a proof costs no more than its length allows."""

from __future__ import annotations

import tracemalloc

import pytest

from fedsilo.errors import Problem
from fedsilo.wire import verify_request
from fedsilo.wire.request import MAX_PROOF_BYTES
from tests.unit.wire.hostile_proofs import HEADERS, KEYS, REQUEST, proof

MEMORY = 256 * MAX_PROOF_BYTES
"""As much as empty maps side by side need, of a byte each; lists in one another could claim 256 times as much."""


@pytest.mark.parametrize("name", HEADERS)
def test_refusing_a_proof_takes_memory_in_proportion_to_its_length(name: str) -> None:
    value = proof(HEADERS[name])
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            verify_request(value, KEYS, **REQUEST)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MEMORY
