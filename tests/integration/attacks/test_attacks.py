"""A sample of the attacks, each done once: refused as it must be, whatever it costs; and lists of all that exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks import run
from attacks.handed_over import HandedOver
from attacks.live_aggregator import LiveAggregator
from attacks.live_gateway import LiveGateway
from attacks.live_guard import LiveGuard
from attacks.programs import README, NotRefusedError, Program, all_programs, programs, readme
from attacks.run import attempt
from attacks.table import listed_programs
from tests.tiers import mark_thorough

ON_AGGREGATOR = (
    "bad-failure-reports",
    "compressed-bodies",
    "connection-flood",
    "flipped-updates",
    "forged-log-lines",
    "hanging-uploads",
    "huge-metrics",
    "huge-models",
    "large-headers",
    "missing-proofs",
    "nested-proofs",
    "other-protocols",
    "pipelined-requests",
    "replayed-proofs",
    "second-updates",
    "smuggled-requests",
    "tasks-of-others",
    "unparsable-requests",
)
ON_GATEWAY = (
    "garbled-requests",
    "guessed-invitations",
    "huge-statements",
    "packed-bodies",
    "silent-connections",
    "wrong-proofs",
)
ON_GUARD = (
    "compressed-answers",
    "cookies",
    "drop-devices",
    "drop-links",
    "endless-failures",
    "false-blobs",
    "forged-tasks",
    "large-tasks",
    "nested-tasks",
    "odd-failures",
    "odd-replies",
    "private-buffers",
    "repeated-exchanges",
    "untrusted-tasks",
)

BY_DOCUMENTS = tuple(program.name for program in programs("documents"))

PROGRAMS = {program.name: program for program in all_programs()}


@pytest.fixture(scope="module")
def aggregator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAggregator]:
    target = LiveAggregator(tmp_path_factory.mktemp("attacks") / "aggregator")
    yield target
    target.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    target = LiveGateway(tmp_path_factory.mktemp("attacks") / "gateway")
    yield target
    target.close()


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGuard]:
    target = LiveGuard(tmp_path_factory.mktemp("attacks") / "guard")
    yield target
    target.close()


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> HandedOver:
    return HandedOver(tmp_path_factory.mktemp("attacks") / "documents")


@pytest.mark.parametrize("name", mark_thorough(ON_AGGREGATOR, ["flipped-updates"]))
def test_aggregator_refuses(name: str, aggregator: LiveAggregator) -> None:
    assert attempt(PROGRAMS[name], aggregator) == ""
    assert aggregator.defects() == ""
    aggregator.play_round()


@pytest.mark.parametrize("name", mark_thorough(ON_GATEWAY, ["wrong-proofs"]))
def test_gateway_refuses(name: str, gateway: LiveGateway) -> None:
    assert attempt(PROGRAMS[name], gateway) == ""
    assert gateway.defects() == ""
    gateway.transfer_honestly()


@pytest.mark.parametrize("name", mark_thorough(ON_GUARD, ["forged-tasks"]))
def test_guard_refuses(name: str, guard: LiveGuard) -> None:
    assert attempt(PROGRAMS[name], guard) == ""
    assert guard.defects() == ""
    guard.answer_honestly()


@pytest.mark.parametrize("name", mark_thorough(BY_DOCUMENTS, ["pickles-and-tags"]))
def test_documents_are_refused(name: str, documents: HandedOver) -> None:
    documents.forget()
    assert attempt(PROGRAMS[name], documents) == ""
    assert documents.defects() == ""


@pytest.mark.thorough
def test_honest_documents_are_opened(documents: HandedOver) -> None:
    documents.open_honestly()


def test_a_trace_of_the_strangers_code_is_of_the_program_that_left_it(
    documents: HandedOver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_attack(target: HandedOver) -> None:
        target.canary.touch()
        raise NotRefusedError("validate did not end")

    def unseen_attack(target: HandedOver) -> None:
        target.canary.touch()

    def innocent_attack(target: HandedOver) -> None:
        target.expect_opened("validate", "-f", "job.yaml", at=target.copy())

    monkeypatch.setattr(run, "HandedOver", lambda _: documents)
    monkeypatch.setattr(documents, "open_honestly", lambda: None)
    attacks = {"killed": killed_attack, "unseen": unseen_attack, "innocent": innocent_attack}
    chosen = [
        Program(name, "documents", "what", "by", "must", True, attack) for name, attack in attacks.items()
    ]
    faults = [row.fault for row in run.by_documents(tmp_path, chosen)]
    assert faults == ["", "NotRefusedError: validate did not end", "the stranger's code ran", ""]


def test_every_program_is_told_from_the_others() -> None:
    assert len(PROGRAMS) == len(all_programs())


@pytest.mark.parametrize("program", all_programs(), ids=lambda program: program.name)
def test_a_program_is_one_cell_of_a_table_in_each_of_its_texts(program: Program) -> None:
    for text in (program.what, program.by, program.must):
        assert text
        assert "|" not in text


def test_the_readme_lists_the_programs_that_exist() -> None:
    """`python -m attacks --list` writes it."""
    head, mark, _ = README.read_text().partition("## On a live")
    assert mark
    assert README.read_text() == head + readme()


def test_the_table_lists_the_programs_that_exist() -> None:
    """`python -m attacks` writes it."""
    assert listed_programs() == list(PROGRAMS)


def test_a_program_that_is_answered_otherwise_is_named(aggregator: LiveAggregator, tmp_path: Path) -> None:
    def attack(target: LiveAggregator) -> None:
        target.expect("wrong-job", target.silo.request("GET", target.ask))

    accepted = Program("accepted", "aggregator", "what", "by", "must", True, attack)
    assert attempt(accepted, aggregator).startswith("NotRefusedError: answered 200 ")
