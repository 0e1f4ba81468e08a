"""Attacks of an aggregator on a guard: tasks that it must not obey, also where the attacker has made the SiloAgent.

Each is refused and audited, and nothing leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods.interface import Exchange
from fedsilo.methods.schedule import exchange_id
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import BlobLink, Contract, SigningKey, Task, seal_task
from tests.integration.service.client import signature_of
from tests.integration.service.scripted import ROUNDS, TREE, ScriptedAggregator
from tests.integration.service.site import wait_until
from tests.tiers import mark_thorough

OTHER_JOB_UID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def guarded_silo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedAggregator]:
    with ScriptedAggregator(tmp_path_factory.mktemp("hostile")) as aggregator:
        yield aggregator


@pytest.fixture
def hostile_aggregator(guarded_silo: ScriptedAggregator) -> ScriptedAggregator:
    """The attacker after an honest task: the guard writes the same refusal once only until it has answered one."""
    name = f"{guarded_silo.next_round}-honest"
    guarded_silo.drop(name)
    guarded_silo.offer(guarded_silo.task(name))
    guarded_silo.wait_acknowledged(name)
    return guarded_silo


def assert_nothing_left(aggregator: ScriptedAggregator, task: str) -> None:
    assert not aggregator.uploads[task]
    assert not [line for line in aggregator.requests if line.startswith(("HEAD", "PATCH")) and task in line]
    assert "departure" not in aggregator.events(task)


UNTRUSTED_TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "of another job": ({"job": OTHER_JOB_UID}, "wrong-job"),
    "for another silo": ({"silo": "silo-south/south"}, "wrong-sender"),
    "of another specification": ({"spec_digest": bytes(32)}, "task-mismatch"),
    "with a name that leads out of the volume": ({"task": "../../../guard/key"}, "malformed"),
    "with a name that is hidden": ({"task": "..."}, "malformed"),
    "with the name of a file of the volume": ({"task": "signature.json"}, "malformed"),
}


def assert_refused(aggregator: ScriptedAggregator, code: str, name: str, sealed: bytes) -> None:
    """Offered this task, the guard writes one refusal with this code, and nothing leaves."""
    before = len(aggregator.audit())
    aggregator.offer_bytes(name, sealed)
    (line,) = wait_until(lambda: aggregator.audit()[before:], f"the refusal {code} in the audit log")
    assert (line["event"], line["code"]) == ("task-refused", code)
    assert_nothing_left(aggregator, name)


@pytest.mark.parametrize("attack", UNTRUSTED_TASKS)
def test_task_is_refused_that_is(attack: str, hostile_aggregator: ScriptedAggregator) -> None:
    changes, code = UNTRUSTED_TASKS[attack]
    task = hostile_aggregator.task("r00001-attack", **changes)
    assert_refused(hostile_aggregator, code, task.task, seal_task(task, hostile_aggregator.key))


SEALED_CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "without a signature": (lambda sealed: sealed[:-66], "truncated"),
    "with a changed byte": (
        lambda sealed: sealed[:30] + bytes([sealed[30] ^ 1]) + sealed[31:],
        "signature-invalid",
    ),
    "with bytes after its end": (lambda sealed: sealed + b"more", "too-long"),
    "that is no envelope": (lambda _sealed: b"do as I say", "malformed"),
}


@pytest.mark.parametrize("attack", SEALED_CHANGES)
def test_task_is_refused(attack: str, hostile_aggregator: ScriptedAggregator) -> None:
    change, code = SEALED_CHANGES[attack]
    sealed = seal_task(hostile_aggregator.task("r00001-sealed"), hostile_aggregator.key)
    assert_refused(hostile_aggregator, code, "r00001-sealed", change(sealed))


def test_a_task_that_another_key_signed_is_refused(hostile_aggregator: ScriptedAggregator) -> None:
    sealed = seal_task(hostile_aggregator.task("r00001-signed"), SigningKey.generate())
    assert_refused(hostile_aggregator, "signature-invalid", "r00001-signed", sealed)


def test_a_refused_task_that_is_offered_again_and_again_does_not_fill_the_log(
    hostile_aggregator: ScriptedAggregator,
) -> None:
    sealed = seal_task(hostile_aggregator.task("r00001-again"), SigningKey.generate())
    assert_refused(hostile_aggregator, "signature-invalid", "r00001-again", sealed)
    before = len(hostile_aggregator.audit())
    asked = len(hostile_aggregator.requests)
    wait_until(lambda: len(hostile_aggregator.requests) >= asked + 2, "the guard to ask twice more")
    assert len(hostile_aggregator.audit()) == before


def test_a_task_that_would_fill_the_guards_memory_is_not_read(hostile_aggregator: ScriptedAggregator) -> None:
    hostile_aggregator.offer_bytes("r00001-large", bytes(4 << 20))
    wait_until(
        lambda: "more than 1048576 bytes" in hostile_aggregator.site.log("north"), "the guard to stop reading"
    )
    assert hostile_aggregator.guard is not None
    assert hostile_aggregator.guard.running


def test_a_redirect_is_not_followed(hostile_aggregator: ScriptedAggregator) -> None:
    hostile_aggregator.redirect = f"https://127.0.0.1:{hostile_aggregator.site.port}/elsewhere"
    try:
        wait_until(
            lambda: "status 307" in hostile_aggregator.site.log("north"), "the guard to see the redirect"
        )
    finally:
        hostile_aggregator.redirect = ""
    assert not [line for line in hostile_aggregator.requests if "elsewhere" in line]


FORBIDDEN_TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "asks for a step that the method does not declare": ({"step": "send_the_data"}, "declares no step"),
    "has another contract": ({"contract": bytes(32)}, "is not"),
    "has the contract of another step": ({"contract": bytes.fromhex(Contract(()).digest())}, "is not"),
}


def assert_forbidden(aggregator: ScriptedAggregator, task: Task, words: str) -> None:
    """The guard says why to its log and to the aggregator, the trainer never sees the task, and nothing leaves."""
    aggregator.drop(task.task)
    aggregator.offer(task)
    report = wait_until(lambda: aggregator.failures.get(task.task), f"the report on {task.task}")
    assert report["reason"] == "PolicyRefused"
    assert words in report["message"]
    assert aggregator.events(task.task) == ["refused"]
    assert not aggregator.volume.task.exists() or task.task not in aggregator.volume.task.read_text()
    assert_nothing_left(aggregator, task.task)


@pytest.mark.parametrize("attack", FORBIDDEN_TASKS)
def test_task_is_forbidden_that(attack: str, hostile_aggregator: ScriptedAggregator) -> None:
    changes, words = FORBIDDEN_TASKS[attack]
    name = "r00001-" + attack.replace(" ", "-")
    assert_forbidden(hostile_aggregator, hostile_aggregator.task(name, **changes), words)


REPEATED_ROUNDS: dict[str, tuple[int, str]] = {
    "the round that was answered last": (0, "each exchange is answered once"),
    "an older round": (-1, "which is over"),
    "a round beyond the job's": (ROUNDS, "which is no exchange of this job"),
}


@pytest.mark.parametrize("attack", REPEATED_ROUNDS)
def test_nothing_leaves_a_second_time_for(attack: str, hostile_aggregator: ScriptedAggregator) -> None:
    offset, words = REPEATED_ROUNDS[attack]
    answered = int(hostile_aggregator.next_round[1:]) + 1  # the round before it is closed without this silo
    honest, name = f"r{answered:05}-honest", f"r{answered + offset:05}-again"
    for task in (honest, name):
        hostile_aggregator.drop(task)
    hostile_aggregator.offer(hostile_aggregator.task(honest))
    hostile_aggregator.wait_acknowledged(honest)
    hostile_aggregator.offer(hostile_aggregator.task(name))
    report = wait_until(lambda: hostile_aggregator.failures.get(name), f"the report on {name}")
    assert report["reason"] == "ExchangeRefused"
    assert words in report["message"]
    assert hostile_aggregator.events(name) == ["refused"]
    assert_nothing_left(hostile_aggregator, name)


def test_after_all_that_an_honest_task_is_answered(hostile_aggregator: ScriptedAggregator) -> None:
    name = f"{hostile_aggregator.next_round}-after-all"
    hostile_aggregator.drop(name)
    hostile_aggregator.offer(hostile_aggregator.task(name))
    hostile_aggregator.wait_acknowledged(name)
    assert hostile_aggregator.events(name) == ["departure", "acknowledged"]


POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "the method": ({"methods": ["fedprox"]}, "policy.methods"),
    "the kind": ({"payloadKinds": ["class_counts"]}, "policy.payloadKinds"),
    "so many bytes": (
        {"maxBytesPerRound": str(sum(array.nbytes for array in TREE.values()) - 1)},
        "maxBytesPerRound",
    ),
    "the job's namespace": ({"jobNamespaces": ["oncology"]}, "policy.jobNamespaces"),
}


@pytest.mark.parametrize("rule", mark_thorough(POLICIES, ["the kind"]))
def test_nothing_leaves_where_the_silos_policy_does_not_allow(rule: str, tmp_path_factory: Any) -> None:
    policy, words = POLICIES[rule]
    with ScriptedAggregator(tmp_path_factory.mktemp("policy"), policy=policy) as aggregator:
        assert_forbidden(aggregator, aggregator.task("r00001-train-north"), words)


def test_a_blob_of_no_bytes_ends_no_guard(hostile_aggregator: ScriptedAggregator) -> None:
    task = hostile_aggregator.task(
        f"{hostile_aggregator.next_round}-empty", blobs=(BlobLink("model", "0" * 64, 0),)
    )
    hostile_aggregator.offer(task)
    wait_until(lambda: task.task in hostile_aggregator.failures, "the report")
    assert hostile_aggregator.failures[task.task]["message"].startswith("digest-mismatch")
    assert hostile_aggregator.guard is not None
    assert hostile_aggregator.guard.running
    assert_nothing_left(hostile_aggregator, task.task)


def test_blobs_that_would_fill_the_volume_are_refused(hostile_aggregator: ScriptedAggregator) -> None:
    huge = BlobLink("model", hostile_aggregator.blob.digest[::-1], 1 << 62)
    task = hostile_aggregator.task(f"{hostile_aggregator.next_round}-huge", blobs=(huge,))
    hostile_aggregator.offer(task)
    wait_until(lambda: task.task in hostile_aggregator.failures, "the refusal")
    assert hostile_aggregator.failures[task.task]["reason"] == "PolicyRefused"
    assert "its blobs have 4611686018427387904 bytes" in hostile_aggregator.failures[task.task]["message"]
    assert_nothing_left(hostile_aggregator, task.task)


# --- A SiloAgent that the attacker has made, and a task key that is his. What is left is the silo's own policy.

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "fedconcat": {"name": "fedconcat", "config": {"clusters": 2}},
    "ccvr": {"name": "ccvr", "config": {"after": {"name": "fedavg"}}},
    "creff": {"name": "creff"},
}


class Forger(ScriptedAggregator):
    """An attacker who gave the silo an agent of his own making; its policy lets models leave and nothing else."""

    def __init__(self, root: Path, method: str) -> None:
        super().__init__(root, policy={"payloadKinds": ["model"]})
        self.key = SigningKey.generate()
        path = self.site.workdir.silo("north") / "agent.json"
        agent = self.site.agent("north")
        job, trust = agent["spec"]["job"], agent["spec"]["trust"]
        job["spec"]["method"] = METHODS[method]
        self.spec = FederatedJobSpec.model_validate(job["spec"])
        job["specDigest"] = spec_digest(self.spec)
        trust["taskKey"] = self.key.verify_key.to_text()
        path.write_text(json.dumps(agent))

    def exchanges(self) -> list[tuple[Exchange, Contract]]:
        """The first exchange of each step of the method, and what the guard derives for it."""
        plan = JobPlan.of(self.spec)
        first = {exchange.phase.step: exchange for exchange in reversed(plan.exchanges)}
        found = [first[step] for step in plan.method.steps()]
        return [
            (exchange, plan.contract(exchange.phase.step, signature_of(TREE), {}))
            for exchange in sorted(found, key=lambda exchange: exchange.round)
        ]


@pytest.mark.parametrize("method", mark_thorough(METHODS, ["creff"]))
def test_a_forged_agent_gets_no_other_kind_than_the_policy_allows(method: str, tmp_path: Path) -> None:
    """Every task is signed with the key that the agent trusts, and asks for what the agent's method declares."""
    with Forger(tmp_path / "forged", method) as forger:
        for exchange, contract in forger.exchanges():
            task = forger.task(
                exchange_id(exchange),
                phase=exchange.phase.name,
                step=exchange.phase.step,
                contract=bytes.fromhex(contract.digest()),
            )
            if set(contract.kinds()) <= {"model"}:
                forger.drop(
                    task.task, {block.name: np.zeros(block.shape, block.dtype) for block in contract.blocks}
                )
                forger.offer(task)
                forger.wait_acknowledged(task.task)
            else:
                assert_forbidden(forger, task, "policy.payloadKinds does not allow")


def test_an_agent_whose_specification_is_not_that_of_its_digest_is_given_no_task(tmp_path: Path) -> None:
    """A person approves a digest: what lies beside it counts only if it has that digest."""
    forger = Forger(tmp_path / "forged", "fedavg")
    path = forger.site.workdir.silo("north") / "agent.json"
    agent = forger.site.agent("north")
    agent["spec"]["job"]["spec"]["training"]["rounds"] += 1
    path.write_text(json.dumps(agent))
    with forger:
        sealed = seal_task(forger.task("r00001-other"), forger.key)
        assert_refused(forger, "task-mismatch", "r00001-other", sealed)
