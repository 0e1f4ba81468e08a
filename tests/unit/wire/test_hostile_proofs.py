"""Before a signature is known, a proof costs no more than its length allows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fedsilo.errors import Problem
from fedsilo.wire import verify_request
from fedsilo.wire.request import MAX_PROOF_BYTES
from tests.paths import ROOT
from tests.unit.wire.hostile_proofs import HEADERS, KEYS, REQUEST, proof

MEMORY = 256 * MAX_PROOF_BYTES
"""Bytes that empty maps side by side need, of a byte each; lists in one another could claim 256 times as much."""

MEMORY_SCRIPT = """
import json
from tests.unit.wire.hostile_proofs import HEADERS, most_memory
print(json.dumps({name: most_memory(header) for name, header in HEADERS.items()}))
"""


@pytest.fixture(scope="module")
def memory() -> dict[str, int]:
    """By header, of a process of its own: in this one, what ran before would be measured too."""
    found = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, int] = json.loads(found.stdout)
    return measured


@pytest.mark.parametrize("name", HEADERS)
def test_refusing_a_proof_takes_memory_in_proportion_to_its_length(name: str, memory: dict[str, int]) -> None:
    with pytest.raises(Problem):
        verify_request(proof(HEADERS[name]), KEYS, **REQUEST)
    assert 0 < memory[name] < MEMORY
