"""What the guard makes of a drop: one copy in one pass, and nothing of one that is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from fedsilo.errors import PolicyRefused
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.silo.release import ReleaseRules
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.wire import (
    Contract,
    ExpectedBlock,
    SigningKey,
    Task,
    Tree,
    open_update,
    stored_digest,
    write_tensors,
)
from fedsilo.wire.tensors import BlockContent
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.signing import SignedUpdate, sign_reply
from fedsilo_agent.guard.task_source import VerifiedTask
from tests.segments import segments_of

TREE: Tree = {
    "w": np.linspace(-1, 1, 700_001, dtype=np.float32),
    "steps": np.array(12, np.int64),
    "half": np.ones(3, np.float16),
    "none": np.zeros((0, 4), np.float32),
}
CONTRACT = Contract(
    tuple(ExpectedBlock("model", name, array.shape, array.dtype.name) for name, array in TREE.items()),
    ("loss",),
)
STATISTICS = Contract((ExpectedBlock("feature_statistics", "count", (3,), "int64"),))


def sign(root: Path, tree: Tree, contract: Contract, limits: ReplyLimits) -> SignedUpdate:
    for name in ("drop", "outbox"):
        (root / name).mkdir()
    write_tensors(tree, root / "drop" / "tensors")
    (root / "drop" / "reply.json").write_text(json.dumps({"samples": 3, "metrics": {}, "support": {}}))
    digest = bytes.fromhex(contract.digest())
    task = Task("job", "silos/s", "r1", 1, "train", "train", bytes(32), digest, (), {})
    reply = DroppedReply(root / "drop", task, contract, root / "blobs", root / "outbox")
    rules = ReleaseRules(limits)
    update = root / "outbox" / "update"
    return sign_reply(reply, update, VerifiedTask(task, bytes(32)), rules, SigningKey.generate())


def test_a_drop_becomes_an_update_by_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the drop its blocks lie by the size of their items. The name is synced by the outbox, before it leaves."""
    steps: list[str] = []

    def note(step: DiskStep, perform: Any) -> None:
        if step.path.is_relative_to(tmp_path / "outbox"):
            steps.append(step.operation)
        perform()

    monkeypatch.setattr(durable, "intercept", note)
    signed = sign(tmp_path, TREE, CONTRACT, ReplyLimits(1))
    assert steps == ["create", "sync", "rename"]
    path = tmp_path / "outbox" / "update"
    assert signed.update == stored_digest(path)
    with open_update(path) as update:
        assert update.names("model") == list(TREE)
        for name, array in TREE.items():
            np.testing.assert_array_equal(update.tensor(name), array)


def test_a_drop_that_changes_while_it_is_copied_is_signed_as_it_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer may still write: digest, inspection and update must come from the same single read."""

    class MeddlingContent(BlockContent):
        @override
        def update(self, piece: memoryview) -> None:
            tensors = tmp_path / "drop" / "tensors"
            with tensors.open("r+b") as file:
                file.seek(-source.nbytes, os.SEEK_END)
                file.write(np.ones_like(source).tobytes())
            super().update(piece)

    source = np.zeros(1 << 19, np.float32)  # two pieces
    monkeypatch.setattr("fedsilo.wire.writer.BlockContent", MeddlingContent)
    contract = Contract((ExpectedBlock("model", "w", source.shape, "float32"),))
    signed = sign(tmp_path, {"w": source}, contract, ReplyLimits(1))
    path = tmp_path / "outbox" / "update"
    assert signed.update == stored_digest(path)
    with open_update(path) as update:
        assert update.tensor("w")[[0, -1]].tolist() == [0, 1]


def test_a_large_tensor_leaves_in_segments(tmp_path: Path) -> None:
    """Pieces of the drop are cut where a segment ends; the update of the same drop is one either way."""
    with segments_of(3 << 18):
        signed = sign(tmp_path, TREE, CONTRACT, ReplyLimits(1))
        path = tmp_path / "outbox" / "update"
        assert signed.update == stored_digest(path)
        assert signed.leaving.kinds == {"model": {"blocks": 4, "bytes": sum(a.nbytes for a in TREE.values())}}
        with open_update(path) as update:
            assert [entry.name for entry in update.header.blocks] == ["w"] * 4 + ["steps", "half", "none"]
            for name, array in TREE.items():
                np.testing.assert_array_equal(update.tensor(name), array)


def test_the_policy_sees_the_values_that_would_leave(tmp_path: Path) -> None:
    tree = {"count": np.array([0, 9, 4], np.int64)}
    with pytest.raises(PolicyRefused, match="block count: place 2 is 4, fewer than the 5"):
        sign(tmp_path, tree, STATISTICS, ReplyLimits(1, min_values_per_feature=5))
    assert list((tmp_path / "outbox").iterdir()) == []
