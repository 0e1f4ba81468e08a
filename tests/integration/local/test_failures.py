"""Silos that crash, hang or refuse: the others go on where quorum allows, and the reason names who was missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.local.manifest import python, silo, silos, write
from tests.integration.local.runs import run, running_processes


@pytest.mark.thorough
def test_a_round_closes_with_quorum_and_names_who_crashed_and_who_hung(tmp_path: Path) -> None:
    members = [*silos("north"), silo("east", python("crash")), silo("south", python("hang"))]
    manifest = write(
        tmp_path / "digits.yaml",
        members,
        training={"rounds": 1},
        participation={"minSilos": 1, "roundDeadline": "20s"},
        backoffLimit=1,
    )
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0, ended.err
    (record,) = ended.history
    assert list(record["samples"]) == ["silo-north/north"]
    assert record["failed"] == {
        "silo-east/east": "TrainerLost: the trainer crashed 2 times, last with exit code 9; see its log"
    }
    assert record["missing"] == ["silo-south/south"]
    assert "east trainer: ended with exit code 9; see " in ended.err
    assert "silo-east/east failed: TrainerLost: " in ended.err
    assert "closed without silo-south/south" in ended.err
    assert running_processes(tmp_path) == {}


@pytest.mark.thorough
def test_a_trainer_that_ends_itself_is_a_failure_and_leaves_nothing_running(tmp_path: Path) -> None:
    members = [*silos("north"), silo("east", python("leave", label=str(tmp_path)))]
    manifest = write(tmp_path / "digits.yaml", members, training={"rounds": 1}, participation={"minSilos": 1})
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0, ended.err
    (record,) = ended.history
    assert record["missing"] == []
    (why,) = record["failed"].values()
    assert why.startswith("TrainerLost: the trainer ended with exit code 0 before the job was over")
    assert "east trainer: ended with exit code 0 too early; see " in ended.err
    assert running_processes(tmp_path) == {}


def test_where_all_are_needed_a_crashing_trainer_fails_the_job(tmp_path: Path) -> None:
    members = [*silos("north"), silo("east", python("crash"))]
    ended = run(write(tmp_path / "digits.yaml", members, backoffLimit=0), tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (4, "QuorumLost")
    message = ended.document["message"]
    assert "quorum is 2; silo-east/east failed: TrainerLost: the trainer ended with exit code 9" in message


@pytest.mark.thorough
def test_guards_that_cannot_start_end_the_job_with_their_cause_and_not_with_a_deadline(
    tmp_path: Path,
) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north", "east"), participation={"roundDeadline": "30m"})
    ended = run(manifest, tmp_path / "run", environment={"SSL_CERT_FILE": str(tmp_path / "gone.pem")})
    assert (ended.code, ended.document["reason"]) == (4, "ManifestInvalid")
    assert ": SSL_CERT_FILE=" in ended.document["message"]
    assert "north guard: ended with exit code 2: ManifestInvalid: SSL_CERT_FILE=" in ended.err
    assert running_processes(tmp_path) == {}


@pytest.mark.thorough
def test_at_the_deadline_without_quorum_the_job_fails_and_can_be_resumed(tmp_path: Path) -> None:
    manifest = write(
        tmp_path / "digits.yaml", [silo("north", python("hang"))], participation={"roundDeadline": "1s"}
    )
    for options in ([], ["--resume"]):
        ended = run(manifest, tmp_path / "run", *options)
        assert (ended.code, ended.document["reason"]) == (4, "DeadlineExceeded")
        assert ended.document["message"] == (
            "0 of 1 silos answered, quorum is 1; still awaited after 1 s: silo-north/north"
        )
    assert running_processes(tmp_path) == {}


def test_a_policy_that_forbids_the_method_is_named(tmp_path: Path) -> None:
    members = [*silos("north"), silo("east", methods=["scaffold"])]
    ended = run(write(tmp_path / "digits.yaml", members), tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (4, "QuorumLost")
    refusal = "PolicyRefused: silo east: policy.methods allows scaffold, not fedavg"
    assert f"silo-east/east failed: {refusal}" in ended.document["message"]


def test_silos_whose_policy_refuses_are_left_out_where_quorum_allows(tmp_path: Path) -> None:
    """Three of four silos refuse by policy in one process; the test before has a guard that refuses."""
    members = [
        *silos("north"),
        silo("east", payloadKinds=["class_counts"]),
        silo("south", jobNamespaces=["elsewhere"]),
        silo("west", maxBytesPerRound="1k"),
    ]
    manifest = write(tmp_path / "digits.yaml", members, training={"rounds": 1}, participation={"minSilos": 1})
    ended = run(manifest, tmp_path / "run", "--in-process")
    assert ended.code == 0, ended.err
    (record,) = ended.history
    assert list(record["samples"]) == ["silo-north/north"]
    for name, field in (("east", "payloadKinds"), ("south", "jobNamespaces"), ("west", "maxBytesPerRound")):
        assert record["failed"][f"silo-{name}/{name}"].startswith("PolicyRefused: silo ")
        assert f"policy.{field}" in record["failed"][f"silo-{name}/{name}"]


def test_half_of_the_silos_train_in_each_round(tmp_path: Path) -> None:
    """Half of the silos train in one process; in `test_result.py` half of the silos of separate processes train."""
    members = silos("north", "east", "south", "west")
    manifest = write(
        tmp_path / "digits.yaml", members, training={"rounds": 4}, participation={"fraction": 0.5}
    )
    ended = run(manifest, tmp_path / "run", "--in-process")
    assert ended.code == 0, ended.err
    sampled = [tuple(record["samples"]) for record in ended.history]
    assert [len(silos) for silos in sampled] == [2, 2, 2, 2]
    assert len(set(sampled)) > 1
