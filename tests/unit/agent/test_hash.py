"""A silo is handed blobs with digests of the job's hash, and with no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedsilo.api.communication import CommunicationSpec
from fedsilo.api.digest import spec_digest
from fedsilo.errors import PolicyRefused, Problem
from fedsilo.wire import BlobLink, Task, seal_task
from tests.integration.service.client import signature_of
from tests.integration.service.scripted import TREE
from tests.unit.agent.scene import Scene

WITH_SHA256, WITH_BLAKE3 = "ab" * 32, f"blake3-{'cd' * 32}"


@pytest.mark.parametrize(
    ("asked", "digests", "refused"),
    [
        (None, [WITH_SHA256], None),
        ("sha256", [WITH_SHA256], None),
        ("blake3", [WITH_BLAKE3], None),
        (None, [WITH_BLAKE3], "BLAKE3 cdcdcdcdcdcd; the job asks for SHA-256"),
        ("sha256", [WITH_BLAKE3], "BLAKE3 cdcdcdcdcdcd; the job asks for SHA-256"),
        ("blake3", [WITH_SHA256], "SHA-256 abababababab; the job asks for BLAKE3"),
        ("blake3", [WITH_BLAKE3, WITH_SHA256], "SHA-256 abababababab; the job asks for BLAKE3"),
    ],
)
def test_a_task_with_digests_of_another_hash_is_refused(
    scene: Scene, asked: Any, digests: list[str], refused: str | None
) -> None:
    spec = scene.check.agent.spec.job.spec.model_copy(
        update={"communication": CommunicationSpec(digest=asked)}
    )
    blobs = tuple(BlobLink(f"tree{number}", digest, 10) for number, digest in enumerate(digests))
    task = Task(**scene.honest | {"spec_digest": bytes.fromhex(spec_digest(spec)), "blobs": blobs})
    sealed = seal_task(task, scene.aggregator.key)
    if refused is None:
        assert scene.check_of(spec).open(sealed) == task
        return
    with pytest.raises(Problem, match=f"task-mismatch: .*{refused}"):
        scene.check_of(spec).open(sealed)


def test_a_contract_with_another_hash_is_refused(scene: Scene) -> None:
    spec = scene.check.agent.spec.job.spec.model_copy(
        update={"communication": CommunicationSpec(digest="blake3")}
    )
    task = Task(**scene.honest)
    check = scene.check_of(spec)
    with pytest.raises(PolicyRefused, match=r"its contract .* is not .*, which this silo derived"):
        check.contract(task, signature_of(TREE))
    ours = replace(scene.contract, algorithm="blake3")
    assert check.contract(replace(task, contract=bytes.fromhex(ours.digest())), signature_of(TREE)) == ours
