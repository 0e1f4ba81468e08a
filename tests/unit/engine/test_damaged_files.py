"""What a disk has lost or changed is never used: it is asked for again, or an error names the file."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.store import JobProgress, JobStore
from fedsilo.errors import FileDamaged
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.methods.state import State
from tests.federate import drive, federate, job_spec, local_silos, open_engine
from tests.unit.engine.synthetic import synthetic_runners

SPEC = job_spec("fedavg", 3, rounds=2, participation={"minSilos": 2, "roundDeadline": "90s"})


@pytest.fixture(scope="module")
def undisturbed_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    engine = federate(tmp_path_factory.mktemp("undisturbed"), SPEC, synthetic_runners(SPEC))
    assert engine.result is not None
    return engine.result.sha256


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an aggregator that was killed in round 2, after two answers; s1 had reported a failure before."""
    root = tmp_path_factory.mktemp("running")
    engine, silos = open_engine(root / "aggregator", SPEC), local_silos(root, synthetic_runners(SPEC))
    for silo in silos:
        silo.answer(engine)
    engine.settle()
    engine.fail("silos/s1", "r00002-train-s1", "TrainerLost", "crashed")
    silos[0].answer(engine)
    engine.wait(10.75)
    assert engine.current_exchange is not None
    sealed = engine.current_exchange.tasks["silos/s1"]
    silos[1].send(engine, sealed.id, silos[1].sign(engine, sealed.contract, sealed.sealed))
    return root / "aggregator"


@pytest.fixture
def directory(running: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(running, tmp_path / "aggregator"))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def model(engine: RoundEngine, directory: Path) -> str:
    """Digest of the model, once the silos have answered whatever they are asked."""
    drive(engine, local_silos(directory.parent / "silos", synthetic_runners(SPEC)))
    assert engine.result is not None
    return engine.result.sha256


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


UPDATE = "open/r00002-train/r00002-train-s1.update"


@pytest.mark.parametrize("part", [0.0, 0.1, 0.4, 0.7, 0.999], ids="at {:.0%} of the file".format)
def test_an_accepted_update_with_a_flipped_bit_is_dropped_and_asked_for_again(
    directory: Path, undisturbed_digest: str, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory / UPDATE
    flip(path, int(part * 8 * path.stat().st_size))
    with caplog.at_level(logging.WARNING):
        engine = open_engine(directory, SPEC)
    assert f"{path}: the accepted update of silos/s1 does not hold any more and was dropped" in caplog.text
    assert (engine.damaged, path.exists()) == (1, False)
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.answered == {"silos/s0"}
    assert engine.current_exchange.round.failed == {}, "whatever it reported before"
    assert engine.current_exchange.round.elapsed == 0, "the silo gets the time that it needs"
    assert engine.accepted_digest("r00002-train-s1") is None
    assert engine.task("silos/s1") is not None
    assert open_engine(directory, SPEC).damaged == 0, "dropped once"
    assert model(engine, directory) == undisturbed_digest


@pytest.mark.parametrize("position", [7, 300, None], ids=["its head", "its header", "all of it"])
def test_an_update_that_changes_between_acceptance_and_fold_is_asked_for_again(
    directory: Path, undisturbed_digest: str, position: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    engine, path = open_engine(directory, SPEC), directory / UPDATE
    silos = local_silos(directory.parent / "silos", synthetic_runners(SPEC))
    silos[2].answer(engine)
    if position is None:
        path.unlink()
    else:
        flip(path, 8 * position)
    with caplog.at_level(logging.WARNING):
        assert engine.settle()
    assert f"{path}: " in caplog.text
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.answered == {"silos/s0", "silos/s2"}
    assert engine.task("silos/s1") is not None
    drive(engine, silos)
    assert engine.result is not None
    assert engine.result.sha256 == undisturbed_digest


@pytest.mark.parametrize("length", [0, 3, 200, -1])
def test_an_accepted_update_that_lost_its_end_is_asked_for_again(
    directory: Path, undisturbed_digest: str, length: int
) -> None:
    path = directory / UPDATE
    path.write_bytes(path.read_bytes()[:length])
    engine = open_engine(directory, SPEC)
    assert engine.damaged == 1
    assert model(engine, directory) == undisturbed_digest


def test_the_update_of_another_silo_does_not_hold(directory: Path, undisturbed_digest: str) -> None:
    path = directory / UPDATE
    shutil.copyfile(path.with_name("r00002-train-s0.update"), path)
    engine = open_engine(directory, SPEC)
    assert engine.damaged == 1
    assert model(engine, directory) == undisturbed_digest


def test_undamaged_files_are_taken_as_they_are(directory: Path, undisturbed_digest: str) -> None:
    engine = open_engine(directory, SPEC)
    assert engine.damaged == 0
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.answered == {"silos/s0", "silos/s1"}
    assert engine.current_exchange.round.elapsed == 10.75
    assert model(engine, directory) == undisturbed_digest


def blob_of(directory: Path) -> Path:
    document = read_with_digest(directory / "state.json")
    assert document is not None
    return directory / "blobs" / str(document["state"]["trees"]["model"]["digest"])


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def refer_to_another_blob(path: Path) -> None:
    """A state that is consistent in itself, with one wrong digest in it."""
    document = read_with_digest(path)
    assert document is not None
    document["state"]["trees"]["model"]["digest"] = "0" * 64
    write_with_digest(path, document)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("state.json", lambda path: flip(path, 500), "state.json: "),
        ("state.json", truncate, "state.json: line 1, column "),
        ("state.json", lambda path: path.write_bytes(b""), "state.json: is empty"),
        ("state.json", lambda path: path.write_text("[]"), "state.json: its content does not match"),
        ("state.json", Path.unlink, "state.json: is missing, although history.jsonl is there"),
        ("state.json", refer_to_another_blob, f"blobs/{'0' * 64}: is missing"),
        ("job.json", truncate, "job.json: line 1, column "),
        ("job.json", Path.unlink, "job.json: is missing, although state.json is there"),
        ("history.jsonl", truncate, r"history.jsonl: has \d+ of the \d+ bytes that state.json counts"),
        ("history.jsonl", Path.unlink, r"history.jsonl: has 0 of the \d+ bytes that state.json counts"),
        ("history.jsonl", lambda path: flip(path, 400), r"history.jsonl: its first \d+ bytes are not those"),
        ("provenance.jsonl", truncate, r"provenance.jsonl: has \d+ of the \d+ bytes that state.json counts"),
        (
            "provenance.jsonl",
            lambda path: flip(path, 400),
            r"provenance.jsonl: its first \d+ bytes are not those",
        ),
        ("blob", lambda path: flip(path, 5000), "blobs/[0-9a-f]{64}: its SHA-256 is [0-9a-f]{12}, not "),
        ("blob", Path.unlink, "blobs/[0-9a-f]{64}: is missing"),
    ],
)
def test_a_damaged_file_that_cannot_be_had_again_is_an_error_and_nothing_is_deleted(
    directory: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(blob_of(directory) if name == "blob" else directory / name)
    before = files(directory)
    with pytest.raises(
        FileDamaged, match=re.escape(f"{directory}/") + message + ".*; restore it from a backup"
    ):
        open_engine(directory, SPEC)
    assert files(directory) == before


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def replace_by_another_file(path: Path) -> None:
    """One of fedsilo's, which matches the digest in itself."""
    write_with_digest(path, {"seconds_of_another": 1})


@pytest.mark.parametrize("name", ["state.json", "job.json", "open/r00002-train/failures.json"])
@pytest.mark.parametrize(
    "replace", [replace_by_directory, replace_by_link_to_itself, replace_by_another_file]
)
def test_what_has_a_files_name_and_is_not_that_file_is_named(
    directory: Path, name: str, replace: Callable[[Path], object]
) -> None:
    replace(directory / name)
    with pytest.raises(FileDamaged, match=re.escape(f"{directory / name}: ")):
        open_engine(directory, SPEC)


@pytest.mark.parametrize("name", ["open", "blobs"])
def test_no_link_leads_what_is_removed_out_of_the_directory(directory: Path, name: str) -> None:
    elsewhere = directory.with_name("elsewhere")
    (directory / name).rename(elsewhere)
    (directory / name).symlink_to(elsewhere)
    before = files(elsewhere)
    with pytest.raises(FileDamaged, match=f"{name}: is not a directory"):
        open_engine(directory, SPEC)
    assert files(elsewhere) == before


def test_a_failure_that_an_update_has_overtaken_does_not_outlive_it(
    directory: Path, undisturbed_digest: str
) -> None:
    (directory / UPDATE).unlink()
    engine = open_engine(directory, SPEC)
    assert engine.current_exchange is not None
    assert engine.current_exchange.round.failed == {}
    assert model(engine, directory) == undisturbed_digest


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("failures.json", "remove it: the silos that failed are asked again"),
        ("elapsed.json", "remove it: the round gets its full time"),
    ],
)
@pytest.mark.parametrize(
    "damage", [truncate, lambda path: flip(path, 90), lambda path: path.write_bytes(b"{}")]
)
def test_what_is_known_of_the_open_round_is_checked_and_may_be_removed(
    directory: Path, undisturbed_digest: str, name: str, remedy: str, damage: Callable[[Path], object]
) -> None:
    path = directory / "open" / "r00002-train" / name
    damage(path)
    with pytest.raises(FileDamaged, match=re.escape(f"{path}: ") + f".*; {remedy}$"):
        open_engine(directory, SPEC)
    path.unlink()
    assert model(open_engine(directory, SPEC), directory) == undisturbed_digest


def test_a_blob_that_the_state_does_not_vouch_for_is_not_taken_for_what_its_name_says(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.claim("job", "a" * 64)
    store.commit(JobProgress(1, State()), None)
    (tmp_path / "blobs" / ("0" * 64)).write_bytes(b"of an evaluation that is handed out, with a flipped bit")
    assert JobStore(tmp_path).load() == JobProgress(1, State())
    assert not list((tmp_path / "blobs").iterdir())


def test_the_history_that_is_vouched_for_is_the_one_that_was_written(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.claim("job", "a" * 64)
    for position in range(1, 4):
        store.commit(JobProgress(position, State()), {"round": position})
    again = JobStore(tmp_path)
    assert again.load() == JobProgress(3, State())
    again.commit(JobProgress(4, State()), {"round": 4})
    last = JobStore(tmp_path)
    last.load()
    assert last.history() == [{"round": number} for number in range(1, 5)]
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    (tmp_path / "history.jsonl").write_text("\n".join([*lines[:3], json.dumps({"round": 5})]) + "\n")
    with pytest.raises(FileDamaged, match=r"history\.jsonl: its first"):
        JobStore(tmp_path).load()
