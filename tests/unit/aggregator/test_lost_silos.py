"""A silo whose guard is gone fails its tasks at once: the round does not wait for its deadline."""

from __future__ import annotations

from pathlib import Path

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import QuorumLost
from fedsilo.files.json_files import write_json
from fedsilo_aggregator.lost_silos import LostSilosFile
from tests.federate import job_spec, open_engine


def engine_of(root: Path, quorum: int) -> RoundEngine:
    return open_engine(root / "aggregator", job_spec("fedavg", 2, participation={"minSilos": quorum}))


def file_of_losses(root: Path, engine: RoundEngine, reason: str) -> LostSilosFile:
    """The file, which names the job's last silo."""
    cause = {"reason": reason, "message": "the guard ended"}
    write_json(root / "lost.json", {engine.identity.silos[-1]: cause})
    return LostSilosFile(root / "lost.json")


def test_a_round_that_needs_the_silo_is_lost_with_its_cause(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, quorum=2)
    assert file_of_losses(tmp_path, engine, "GuardLost").fail_tasks(engine)
    assert not engine.awaits_answers
    engine.settle()
    assert isinstance(engine.failure, QuorumLost)
    assert "the guard ended" in str(engine.failure)


def test_what_no_second_try_mends_fails_the_job_by_its_reason(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, quorum=1)
    assert file_of_losses(tmp_path, engine, "ManifestInvalid").fail_tasks(engine)
    assert engine.failure is not None
    assert (engine.failure.reason, str(engine.failure)) == (
        "ManifestInvalid",
        f"silo {engine.identity.silos[-1]}: the guard ended",
    )


def test_a_round_with_a_quorum_waits_for_the_others_only(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, quorum=1)
    file = file_of_losses(tmp_path, engine, "GuardLost")
    assert file.fail_tasks(engine)
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.awaited_silos == engine.identity.silos[:-1]
    assert not file.fail_tasks(engine), "once is enough"


def test_no_file_and_half_a_file_fail_nobody(tmp_path: Path) -> None:
    engine = engine_of(tmp_path, quorum=1)
    (tmp_path / "torn.json").write_bytes(b'{"silo')
    for path in (None, tmp_path / "absent.json", tmp_path / "torn.json"):
        assert not LostSilosFile(path).fail_tasks(engine)
