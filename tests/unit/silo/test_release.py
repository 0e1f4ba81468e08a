"""What leaves of a reply is the same, to the bit and to the word, whether it lies in files or in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings.registry import with_encoding
from fedsilo.errors import PolicyRefused
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.drop import write_drop
from fedsilo.silo.release import EgressSummary, Release, ReleaseRules, release
from fedsilo.silo.reply import reply_document
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.silo.secret import Secret
from fedsilo.simulation.in_memory import HeldReply, new_copy
from fedsilo.transforms.guard import AnsweredTask, GuardedReply, GuardSide
from fedsilo.transforms.training_noise.guard import TrainingNoiseGuardSide
from fedsilo.transforms.update_noise.guard import UpdateNoiseGuardSide
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from fedsilo.wire import BlobLink, Contract, ExpectedBlock, SigningKey, Task, Tree, open_update, write_blob
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.signing import sign_reply
from fedsilo_agent.guard.task_source import VerifiedTask

MODEL: Tree = {
    "half": np.linspace(0, 1, 5, dtype=np.float16),
    "w": np.linspace(-1, 1, 200_001, dtype=np.float32),
    "none": np.zeros((0, 4), np.float32),
    "steps": np.array(3, np.int64),
    "active": np.array([True, False]),
}
FLOATS: Tree = {name: array for name, array in MODEL.items() if array.dtype.kind == "f"}
"""The tensors to which noise can be added."""


def blocks(kind: str, tree: Tree, **more: Any) -> tuple[ExpectedBlock, ...]:
    return tuple(ExpectedBlock(kind, name, a.shape, a.dtype.name, **more) for name, a in tree.items())


CONTRACT = Contract(
    blocks("model", MODEL), ("loss", "accuracy", "personal_accuracy"), ranges={"accuracy": (0, 1)}
)
MEANS = Contract(
    tuple(ExpectedBlock("class_means", f"mean/{label}", (6,), "float32", label) for label in range(3))
)
STATISTICS = Contract(
    (
        ExpectedBlock("feature_statistics", "count", (3,), "int64"),
        ExpectedBlock("feature_statistics", "mean", (3,), "float64"),
    )
)
TARGETS = Contract(
    (
        ExpectedBlock("feature_statistics", "targets/count", (1,), "int64"),
        ExpectedBlock("feature_statistics", "targets/mean", (1,), "float64"),
    )
)
CONFUSION = Contract(blocks("confusion", {"confusion/0": np.zeros(4, np.int64)}, label=0))
PLAIN_CONTRACT = Contract(blocks("model", {"w": np.zeros(8, np.float32)}))
TOP = with_encoding(PLAIN_CONTRACT, UploadSpec(encoding="topk", fraction=0.25), frozenset({"w"}))
ANSWERED_TASK = AnsweredTask("r1", "train", "train", 1)
LIMITS = ReplyLimits(5, min_values_per_feature=5, min_samples_per_feature=5)
PRIVACY = UpdatePrivacy(2.0, 1.0, 4, 3)
PLANNED_MECHANISMS = (Mechanism(2.0, 0.25, 8),)


class PlannedNoiseFake(TrainingNoiseGuardSide):
    """A guard's side of a job with this plan, for which no method is needed."""

    def __init__(self, plan: tuple[Mechanism, ...], compares: bool) -> None:
        self._mechanisms, self._compares = plan, compares

    @override
    def required_mechanisms(self, step: str, samples: int) -> tuple[Mechanism, ...]:
        return self._mechanisms

    @override
    def require(self, reply: GuardedReply, tensor: Callable[[str], np.ndarray]) -> None:
        if self._compares:
            super().require(reply, tensor)


@dataclass(frozen=True)
class Case:
    """A reply and what a silo asks of it.

    :param given: the model that the task hands out, if any.
    :param problem: part of the refusal; None where it leaves.
    """

    reply: Reply
    problem: str | None = None
    contract: Contract = CONTRACT
    limits: ReplyLimits = LIMITS
    planned: tuple[Mechanism, ...] = ()
    privacy: UpdatePrivacy | None = None
    compares: bool = False
    given: Tree | None = field(default_factory=lambda: MODEL)

    def rules(self, secret: Path) -> ReleaseRules:
        sides: list[GuardSide] = []
        if self.planned or self.compares:
            sides.append(PlannedNoiseFake(self.planned, self.compares))
        if self.privacy is not None:
            sides.append(UpdateNoiseGuardSide(self.privacy, Secret(secret).generator))
        return ReleaseRules(self.limits, sides)


def model(samples: int = 9, metrics: Mapping[str, float] | None = None, **changed: Any) -> Reply:
    return Reply({**MODEL, **changed}, samples, metrics or {})


def tree_without(name: str, tree: Tree = MODEL) -> Tree:
    return {other: array for other, array in tree.items() if other != name}


def means(*labels: int, support: int = 9) -> Reply:
    tensors = {f"mean/{label}": np.full(6, label, np.float32) for label in labels}
    return Reply(tensors, 9, support=dict.fromkeys(tensors, support))


def statistics(count: list[int], mean: list[float], prefix: str = "") -> Reply:
    return Reply({prefix + "count": np.array(count), prefix + "mean": np.array(mean, np.float64)}, 9)


def top(indices: list[int], values: list[float]) -> Reply:
    found = {"w.indices": np.array(indices, np.uint32), "w": np.array(values, np.float32)}
    return Reply({block.name: found[block.name].astype(block.dtype) for block in TOP.blocks}, 9)


def noisy_case(reply: Reply, problem: str | None = None, given: Tree | None = FLOATS) -> Case:
    contract, limits = Contract(blocks("model", FLOATS)), replace(LIMITS, figures=False)
    return Case(reply, problem, contract, limits, privacy=PRIVACY, given=given)


MOVED_FLOATS = {name: array + array.dtype.type(0.25) for name, array in FLOATS.items()}
SCORES = {"loss": 0.5, "accuracy": 0.75, "personal_accuracy": 0.9}
CASES = {
    "a model": Case(model(metrics=SCORES)),
    "arrays in another order of memory": Case(
        Reply({"w": np.ones((40, 30), np.float32).T}, 9),
        contract=Contract((ExpectedBlock("model", "w", (30, 40), "float32"),)),
    ),
    "withheld accuracy": Case(model(metrics=SCORES), limits=replace(LIMITS, personal_accuracy="Withheld")),
    "no figures": Case(model(metrics=SCORES), limits=replace(LIMITS, figures=False)),
    "a class left out": Case(means(0, 2), contract=MEANS),
    "nothing at all": Case(Reply(), contract=MEANS),
    "too few of a class": Case(means(0, 1, support=4), "class 0 stands on 4 samples", MEANS),
    "a class of nobody knows how many": Case(
        Reply(means(0).tensors, 9), "state in Reply.support on how many samples it stands", MEANS
    ),
    "an unexpected block": Case(model(more=np.ones(1)), "unexpected-block: block 'more'"),
    "another shape": Case(model(w=np.ones(3, np.float32)), "wrong-shape: block w"),
    "another dtype": Case(model(steps=np.array(3, np.int32)), "wrong-dtype: block steps"),
    "a missing block": Case(Reply(tree_without("w"), 9), "missing-block: block w"),
    "NaN": Case(model(half=np.full(5, np.nan, np.float16)), "not-finite: block half"),
    "two tensors of NaN": Case(
        model(half=np.full(5, np.nan, np.float16), w=np.full(200_001, np.inf, np.float32)),
        "not-finite: block w",
    ),
    "no boolean": Case(
        model(active=np.array([2, 0], np.uint8).view(bool)), "block active: a bool is neither"
    ),
    "another metric": Case(model(metrics={"auc": 0.5}), "unexpected-metric: metric auc"),
    "a metric out of range": Case(model(metrics={"accuracy": 2}), "out-of-range: metric accuracy"),
    "a metric that is no number": Case(model(metrics={"loss": np.nan}), "are not finite numbers by name"),
    "a negative number of samples": Case(model(samples=-1), "samples -1 is not a count"),
    "enough values": Case(statistics([0, 5, 9], [0, 1, 2]), contract=STATISTICS),
    "few values": Case(statistics([0, 4, 9], [0, 1, 2]), "block count: place 1 is 4", STATISTICS),
    "a mean of nothing": Case(statistics([0, 5, 9], [1, 1, 2]), "block mean: place 0 is 1", STATISTICS),
    "few targets": Case(statistics([4], [1], "targets/"), "block targets/count: 4 is fewer", TARGETS),
    "few scores": Case(
        Reply({"confusion/0": np.array([1, 1, 1, 1])}, 9, support={"confusion/0": 9}),
        "block confusion/0: 4 is fewer examples",
        CONFUSION,
    ),
    "an encoded tensor": Case(top([1, 7], [0.5, -1]), contract=TOP),
    "one that cannot be decoded": Case(top([1, 9], [0.5, -1]), "w.indices", TOP),
    "the plan": Case(replace(model(), mechanisms=PLANNED_MECHANISMS), planned=PLANNED_MECHANISMS),
    "no plan": Case(replace(model(), mechanisms=PLANNED_MECHANISMS), "job's plan for this step", planned=()),
    "not the plan": Case(model(), "mechanisms are none", planned=PLANNED_MECHANISMS),
    "integers as handed out": Case(model(w=MODEL["w"] * 2), compares=True),
    "integers of its own": Case(model(steps=np.array(4)), "block steps: is not as the task", compares=True),
    "integers without a model": Case(model(), "hands out no model", compares=True, given=None),
    "noise": noisy_case(Reply(MOVED_FLOATS, 9, {"loss": 0.5})),
    "noise of a change that is not finite": noisy_case(
        Reply({**MOVED_FLOATS, "half": np.full(5, np.nan, np.float16)}), "change of the model is not finite"
    ),
    "noise of a part of the model": noisy_case(
        Reply(tree_without("w", MOVED_FLOATS)), "missing-block: block w"
    ),
    "noise of more than the model": noisy_case(
        Reply(MOVED_FLOATS), "block half: is not in the task's model", given=tree_without("half", FLOATS)
    ),
    "noise without a model": noisy_case(Reply(MOVED_FLOATS), "hands out no model", given=None),
    # Of several faults both name the same one.
    "plan before blocks": Case(Reply({}, 9), "job's plan", planned=PLANNED_MECHANISMS),
    "figures before content": Case(
        model(metrics={"auc": 1}, w=np.full(200_001, np.nan, np.float32)), "unexpected-metric"
    ),
    "content before counts": Case(
        statistics([4, 5, 9], [np.nan, 1, 2]), "not-finite: block mean", STATISTICS
    ),
}


@dataclass(frozen=True)
class ReleaseRecord:
    """What has left, as nobody can tell files from memory by."""

    leaving: EgressSummary
    mechanisms: tuple[Mechanism, ...]
    records: int | None
    content: dict[str, list[tuple[str, str, tuple[int, ...], bytes]]]

    @classmethod
    def of(cls, found: Release[Any], kinds: Mapping[str, Tree]) -> ReleaseRecord:
        content = {
            kind: [(name, array.dtype.name, array.shape, array.tobytes()) for name, array in tree.items()]
            for kind, tree in kinds.items()
        }
        return cls(found.leaving, found.mechanisms, found.records, content)


def in_files(case: Case, root: Path, secret: Path) -> ReleaseRecord:
    """By the guard's way."""
    for name in ("drop", "blobs", "outbox"):
        (root / name).mkdir()
    links: tuple[BlobLink, ...] = ()
    if case.given is not None:
        ref = write_blob(case.given, root / "blobs")
        links = (BlobLink("model", ref.digest, ref.length),)
    task = Task(
        "job",
        "silos/s",
        "r1",
        1,
        "train",
        "train",
        bytes(32),
        bytes.fromhex(case.contract.digest()),
        links,
        {},
    )
    write_drop(root / "drop", case.reply.tensors, reply_document(case.reply), durable=False)
    reply = DroppedReply(root / "drop", task, case.contract, root / "blobs", root / "outbox")
    path = root / "outbox" / "update"
    try:
        found = sign_reply(
            reply, path, VerifiedTask(task, bytes(32)), case.rules(secret), SigningKey.generate()
        )
    finally:
        assert [left.name for left in (root / "outbox").iterdir()] in ([], ["update"])
    with open_update(path) as update:
        assert (update.header.samples, update.header.metrics) == (
            found.leaving.samples,
            found.leaving.metrics,
        )
        kinds = case.contract.kinds()
        return ReleaseRecord.of(
            found, {kind: {n: update.tensor(n) for n in update.names(kind)} for kind in kinds}
        )


def in_memory(case: Case, secret: Path) -> ReleaseRecord:
    """By the simulation's way."""
    task = SiloTask("train", "train", 1, 1, 1, {} if case.given is None else {"model": case.given}, {})
    reply, copied = HeldReply(case.reply, task), partial(new_copy, case.contract)
    found = release(ANSWERED_TASK, case.contract, reply, case.rules(secret), copied)
    return ReleaseRecord.of(found, found.update)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_files_and_memory_let_go_of_the_same(case: Case, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    if case.problem is None:
        assert in_files(case, tmp_path, secret) == in_memory(case, secret)
        return
    with pytest.raises(PolicyRefused) as by_guard:
        in_files(case, tmp_path, secret)
    with pytest.raises(PolicyRefused) as by_simulation:
        in_memory(case, secret)
    assert case.problem in str(by_guard.value)
    assert str(by_guard.value) == str(by_simulation.value)


def test_what_leaves_of_memory_is_no_copy_of_it() -> None:
    case = CASES["a model"]
    found = release(
        ANSWERED_TASK,
        CONTRACT,
        HeldReply(case.reply, SiloTask("train", "train", 1, 1, 1, {}, {})),
        ReleaseRules(LIMITS),
        partial(new_copy, CONTRACT),
    )
    assert np.shares_memory(found.update["model"]["w"], MODEL["w"])
    assert not found.update["model"]["w"].flags.writeable
