"""Attacks of a trainer on its own guard: what it drops beside the contract stays, and the guard lives."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.errors import PolicyRefused
from fedsilo.silo.release import ReleaseRules
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.wire import Contract, ExpectedBlock, SigningKey, Task, Tree, write_tensors
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.signing import SignedUpdate, sign_reply
from fedsilo_agent.guard.task_source import VerifiedTask
from tests.integration.service.client import contents_of, header_of
from tests.integration.service.scripted import DISK_FULL_ANSWER, TREE, ScriptedAggregator
from tests.integration.service.site import wait_until
from tests.updates import digest_of


@pytest.fixture(scope="module")
def silo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedAggregator]:
    with ScriptedAggregator(tmp_path_factory.mktemp("drops")) as aggregator:
        yield aggregator


def tampered_tensors(name: str = "classifier.weight", **changes: Any) -> Tree:
    """The honest tensors with one replaced (`value`), or others added."""
    return {**TREE, **({name: changes.pop("value")} if "value" in changes else {}), **changes}


def not_finite(value: float) -> Tree:
    weights = TREE["classifier.weight"].copy()
    weights[1, 2] = value
    return tampered_tensors(value=weights)


TENSORS: dict[str, tuple[Tree, str]] = {
    "a value that is not a number": (not_finite(np.nan), "not-finite"),
    "an infinite value": (not_finite(-np.inf), "not-finite"),
    "a tensor more": (tampered_tensors(patients=np.arange(4, dtype=np.float32)), "unexpected-block"),
    "a tensor less": ({"encoder.weight": TREE["encoder.weight"]}, "missing-block"),
    "a tensor of another shape": (tampered_tensors(value=np.ones((6, 3), np.float32)), "wrong-shape"),
    "a tensor of another dtype": (tampered_tensors(value=np.ones((3, 6), np.float64)), "wrong-dtype"),
    "more bytes than the contract has": (tampered_tensors(table=np.zeros(5 << 20, np.uint8)), "larger than"),
}

REPLIES: dict[str, tuple[dict[str, Any], str]] = {
    "a metric more": ({"metrics": {"loss": 0.5, "patients": 41}}, "unexpected-metric"),
    "a metric that is not a number": ({"metrics": {"loss": float("nan")}}, "metrics"),
    "a metric beyond every float": ({"metrics": {"loss": 10**400}}, "metrics"),
    "a metric whose square overflows": ({"metrics": {"loss": 1.7e308}}, "out-of-range"),
    "metrics that are a list": ({"metrics": ["loss"]}, "metrics"),
    "metrics that are text": ({"metrics": {"loss": "Jane Doe"}}, "metrics"),
    "a negative sample count": ({"samples": -1}, "samples"),
    "a sample count that is no number": ({"samples": True}, "samples"),
    "a sample count beyond every integer": ({"samples": 10**30}, "samples"),
}


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def linked_directory(directory: Path) -> None:
    elsewhere = directory.with_name(f"{directory.name}-elsewhere")
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)


def linked_failure(drop: Path) -> None:
    (drop / "reply.json").rename(drop / "kept")
    (drop / "failed.json").symlink_to("kept")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "tensors that are a link": (
        lambda drop: replace(drop / "tensors", lambda path: path.symlink_to("/etc/passwd")),
        "not a plain file",
    ),
    "tensors that are a pipe": (lambda drop: replace(drop / "tensors", os.mkfifo), "not a plain file"),
    "tensors that are a directory": (lambda drop: replace(drop / "tensors", Path.mkdir), "not a plain file"),
    "no tensors": (lambda drop: (drop / "tensors").unlink(), "not a plain file"),
    "tensors that end early": (lambda drop: os.truncate(drop / "tensors", 100), "malformed"),
    "tensors of nothing": (lambda drop: os.truncate(drop / "tensors", 0), "malformed"),
    "tensors of a hundred gigabytes": (lambda drop: os.truncate(drop / "tensors", 100 << 30), "larger than"),
    "a reply that is a link": (
        lambda drop: replace(drop / "reply.json", lambda path: path.symlink_to("/etc/passwd")),
        "not a plain file",
    ),
    "a reply that is a link to nothing": (
        lambda drop: replace(drop / "reply.json", lambda path: path.symlink_to("/nowhere")),
        "not a plain file",
    ),
    "a reply that is a pipe": (lambda drop: replace(drop / "reply.json", os.mkfifo), "not a plain file"),
    "a reply of many gigabytes": (lambda drop: os.truncate(drop / "reply.json", 100 << 30), "larger than"),
    "a reply that is no JSON": (lambda drop: (drop / "reply.json").write_text("{"), "not JSON"),
    "a reply nested without end": (lambda drop: (drop / "reply.json").write_text("[" * 100_000), "not JSON"),
    "a reply that is a list": (lambda drop: (drop / "reply.json").write_text("[]"), "not a JSON object"),
    "a directory that is a link": (linked_directory, "not a plain file"),
    "a failure that is a link": (linked_failure, "not a plain file"),
}


def assert_refused(silo: ScriptedAggregator, task: str, words: str) -> None:
    silo.offer(silo.task(task))
    report = wait_until(lambda: silo.failures.get(task), f"the report on {task}")
    assert report["reason"] == "PolicyRefused"
    assert words in report["message"]
    assert silo.events(task) == ["refused"]
    assert not silo.uploads[task]
    assert list(silo.volume.outbox.iterdir()) == []


def attack_task(silo: ScriptedAggregator, attack: str) -> str:
    """A task of a round of its own: each refusal is the answer to one."""
    return f"{silo.next_round}-{attack.replace(' ', '-')}"


@pytest.mark.parametrize("attack", TENSORS)
def test_drop_is_refused_with(attack: str, silo: ScriptedAggregator) -> None:
    (tree, words), task = TENSORS[attack], attack_task(silo, attack)
    silo.drop(task, tree)
    assert_refused(silo, task, words)


@pytest.mark.parametrize("attack", REPLIES)
def test_reply_is_refused_with(attack: str, silo: ScriptedAggregator) -> None:
    (reply, words), task = REPLIES[attack], attack_task(silo, attack)
    silo.drop(task, **reply)
    assert_refused(silo, task, words)


@pytest.mark.parametrize("attack", FILES)
def test_files_are_refused_with(attack: str, silo: ScriptedAggregator) -> None:
    (spoil, words), task = FILES[attack], attack_task(silo, attack)
    spoil(silo.drop(task))
    assert_refused(silo, task, words)


def test_the_bytes_that_are_sent_are_those_that_were_checked(silo: ScriptedAggregator) -> None:
    """The trainer changes its file after the guard has signed; what is sent again is the guard's own copy."""
    task = attack_task(silo, "changed later")
    drop = silo.drop(task)
    silo.outcomes.append(DISK_FULL_ANSWER)
    silo.offer(silo.task(task))
    wait_until(lambda: silo.uploads[task], "the first try")
    write_tensors(tampered_tensors(value=np.full((3, 6), 99, np.float32)), drop / "tensors")
    silo.wait_acknowledged(task)
    first, second = silo.uploads[task]
    assert first == second
    assert contents_of(second) == [TREE[block.name].tobytes() for block in header_of(second).blocks]
    departure = next(line for line in silo.audit() if line["event"] == "departure" and line["task"] == task)
    assert departure["digest"] == digest_of(second)


@contextmanager
def tear_file(path: Path) -> Iterator[None]:
    """Cut the file and write it whole again, as fast as one can."""
    whole, stop = path.read_bytes(), threading.Event()

    def tear() -> None:
        with path.open("r+b") as file:
            while not stop.is_set():
                file.truncate(10)
                os.pwrite(file.fileno(), whole, 0)

    tearing = threading.Thread(target=tear)
    tearing.start()
    try:
        yield
    finally:
        stop.set()
        tearing.join()


def settled(silo: ScriptedAggregator, task: str) -> bool:
    return bool(set(silo.events(task)) & {"acknowledged", "refused"})


@pytest.mark.parametrize("number", range(5))
def test_a_file_that_is_cut_while_it_is_read_does_not_kill_the_guard(
    number: int, silo: ScriptedAggregator
) -> None:
    """Mapped into memory, it would: reading beyond a file's new end is SIGBUS. Whatever leaves is whole."""
    assert silo.guard is not None
    task = attack_task(silo, f"cut {number}")
    drop = silo.drop(task)
    with tear_file(drop / "tensors"):
        silo.offer(silo.task(task))
        wait_until(lambda: settled(silo, task), f"the end of {task}")
    for update in silo.uploads[task]:
        for block, content in zip(header_of(update).blocks, contents_of(update), strict=True):
            assert hashlib.sha256(content).digest() == block.digest
    assert silo.guard.running


COUNTS = Contract(
    tuple(ExpectedBlock("class_means", f"mean/{label}", (6,), "float32", label) for label in range(3)),
    ("loss",),
)


def per_class(drop: Path, labels: list[int], support: dict[str, Any]) -> None:
    drop.mkdir()
    write_tensors({f"mean/{label}": np.ones(6, np.float32) for label in labels}, drop / "tensors")
    ScriptedAggregator.complete(drop, support=support)


def sign_drop(root: Path, task: Task) -> SignedUpdate:
    reply = DroppedReply(root / "drop", task, COUNTS, root / "blobs", root)
    rules = ReleaseRules(ReplyLimits(5))
    return sign_reply(reply, root / "update", VerifiedTask(task, bytes(32)), rules, SigningKey.generate())


@pytest.mark.parametrize(
    "support",
    [{"mean/0": 9, "mean/1": 4}, {"mean/0": 9}, {}, {"mean/0": 9, "mean/1": -5}],
    ids=["too few", "none stated", "nothing stated", "negative"],
)
def test_statistics_of_a_class_with_too_few_samples_do_not_leave(
    support: dict[str, int], silo: ScriptedAggregator, tmp_path: Path
) -> None:
    per_class(tmp_path / "drop", [0, 1], support)
    with pytest.raises(PolicyRefused, match="minSamplesPerClass 5"):
        sign_drop(tmp_path, silo.task("r1"))
    assert [path.name for path in tmp_path.iterdir()] == ["drop"]


def test_a_class_that_is_left_out_needs_no_support(silo: ScriptedAggregator, tmp_path: Path) -> None:
    per_class(tmp_path / "drop", [0, 2], {"mean/0": 5, "mean/2": 7})
    assert sign_drop(tmp_path, silo.task("r1")).leaving.kinds == {"class_means": {"blocks": 2, "bytes": 48}}
    names = [block.name for block in header_of((tmp_path / "update").read_bytes()).blocks]
    assert names == ["mean/0", "mean/2"], "and the support itself stays in the silo"
    assert b"support" not in (tmp_path / "update").read_bytes()


def test_a_drop_without_a_task_leaves_nothing(silo: ScriptedAggregator) -> None:
    """A trainer cannot make the guard send anything that the aggregator did not ask for."""
    silo.drop("r00099-unasked")
    asked = attack_task(silo, "asked")
    silo.drop(asked)
    silo.offer(silo.task(asked))
    silo.wait_acknowledged(asked)
    assert not silo.uploads["r00099-unasked"]
    assert json.dumps(silo.audit()).count("r00099-unasked") == 0
