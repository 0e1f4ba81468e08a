"""What the engine writes down of every exchange: the same bytes after any crash, and kept updates that stay whole."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsilo.api.digest import canonical_digest, spec_digest
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.store import JobProgress, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FileDamaged, MethodError
from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from fedsilo.methods.state import State
from fedsilo.transforms.transform import ReceivedExchange
from fedsilo.wire import UpdateCheck
from tests.faults.page_cache import PageCache
from tests.federate import LocalSilo, drive, federate, job_spec, local_silos, open_engine
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.engine.test_store import at_every_flush_below

SPEC = job_spec("fedavg", 2, rounds=2, aggregator={"keepUpdates": True})
FORGETS = job_spec("fedavg", 2, rounds=2)


def final_files(directory: Path) -> dict[str, bytes]:
    """The provenance, the model, and what was kept."""
    files = [
        directory / "model.safetensors",
        *directory.glob("provenance.json*"),
        *directory.rglob("*.update"),
    ]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def undisturbed_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a job leaves that nothing happens to."""
    root = tmp_path_factory.mktemp("undisturbed")
    federate(root, SPEC, synthetic_runners(SPEC))
    return final_files(root / "aggregator")


@pytest.mark.thorough
def test_killed_at_any_flush_the_job_leaves_the_same_provenance(tmp_path: Path) -> None:
    directory, copies = tmp_path / "aggregator", list[Path]()

    def copy() -> None:
        copies.append(tmp_path / f"crash-{len(copies)}")
        shutil.copytree(directory, copies[-1])

    with at_every_flush_below(directory, copy):
        federate(tmp_path, SPEC, synthetic_runners(SPEC))
    undisturbed = final_files(directory)
    assert len(undisturbed) == 9, "three files, and six updates: two rounds and an evaluation of two silos"
    assert len(copies) > 20
    for crash in copies:
        engine = open_engine(crash, SPEC)
        drive(engine, local_silos(tmp_path / f"silos-{crash.name}", synthetic_runners(SPEC)))
        assert final_files(crash) == undisturbed, crash.name
        assert not list((crash / "open").iterdir())


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.thorough] if seed % 4 else []) for seed in range(14)]
)
def test_after_a_power_cut_at_any_step_the_job_leaves_the_same_provenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, undisturbed_files: dict[str, bytes]
) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "aggregator"
    directory.mkdir()
    cache = PageCache(directory, tmp_path / "record")
    left_steps = chance.randrange(85)  # of 87 to the end

    def take(step: DiskStep, perform: Callable[[], None]) -> None:
        nonlocal left_steps
        left_steps -= step.path.is_relative_to(directory)
        if left_steps < 0:
            raise PowerCut
        cache.take(step, perform)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "intercept", take)
        patch.setattr(LocalSilo, "send", upload)
        with pytest.raises(PowerCut):
            federate(tmp_path, SPEC, synthetic_runners(SPEC))
    cache.cut(chance, certain=seed % 5 == 0)
    engine = open_engine(directory, SPEC)
    drive(engine, local_silos(tmp_path / "silos", synthetic_runners(SPEC)))
    assert final_files(directory) == undisturbed_files
    assert not [
        path for path in (directory / "kept").rglob("*") if path.is_file() and path.suffix != ".update"
    ]


def upload(silo: LocalSilo, engine: RoundEngine, task: str, update: Path) -> None:
    """Take an update as the aggregator receives one: it is on the disk before it is accepted."""
    path, content = engine.partial_path(task), update.read_bytes()
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(content)
        durable.sync(file, path)
    checker = UpdateCheck(engine.expected_update(task, silo.reference), silo.key.verify_key)
    checker.feed(content)
    engine.accept(silo.reference, path, checker.finish())
    silo.acknowledged = task


class PowerCut(BaseException):
    """The end of a process, and of what was not on the disk."""


def test_without_the_wish_no_update_is_kept(tmp_path: Path) -> None:
    federate(tmp_path, FORGETS, synthetic_runners(FORGETS))
    assert sorted(final_files(tmp_path / "aggregator")) == [
        "model.safetensors",
        "provenance.json",
        "provenance.jsonl",
    ]


def test_keeping_updates_changes_no_byte_of_the_model(tmp_path: Path) -> None:
    def sha256(engine: RoundEngine) -> str:
        assert engine.result is not None
        return engine.result.sha256

    keeping = federate(tmp_path / "keeping", SPEC, synthetic_runners(SPEC))
    assert sha256(keeping) == sha256(federate(tmp_path / "forgetting", FORGETS, synthetic_runners(FORGETS)))


def test_a_job_that_ended_writes_its_provenance_again_as_it_was(tmp_path: Path) -> None:
    directory = tmp_path / "aggregator"
    federate(tmp_path, SPEC, synthetic_runners(SPEC))
    before = final_files(directory)
    (directory / "provenance.json").unlink()
    open_engine(directory, SPEC)
    assert final_files(directory) == before


@pytest.mark.parametrize("name", ["provenance.jsonl", "kept"])
def test_provenance_without_a_state_is_damage(tmp_path: Path, name: str) -> None:
    store = JobStore(tmp_path)
    store.claim("job", "a" * 64)
    store.commit(JobProgress(1, State()), None, ["{}"])
    (tmp_path / "kept").mkdir()
    (tmp_path / "state.json").unlink()
    if name == "kept":
        (tmp_path / "provenance.jsonl").unlink()
    with pytest.raises(FileDamaged, match=f"state.json: is missing, although {name} is there"):
        JobStore(tmp_path).load()


def test_values_that_json_cannot_say_are_the_methods_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Workflow._aggregate_received

    def aggregate(self: Workflow, received: ReceivedExchange) -> State:
        return honest(self, received).with_values(loss=float("nan"))

    monkeypatch.setattr(Workflow, "_aggregate_received", aggregate)
    with pytest.raises(MethodError, match="values hold what JSON cannot say"):
        federate(tmp_path, SPEC, synthetic_runners(SPEC))


def test_the_specification_of_a_chain_is_the_one_that_was_written(tmp_path: Path) -> None:
    """Its digest is the job's, also where the method adds the parts of a model that it divides."""
    spec = job_spec("fedrep", 2)
    federate(tmp_path, spec, synthetic_runners(spec))
    first = (tmp_path / "aggregator" / "provenance.jsonl").read_text().splitlines()[0]
    assert canonical_digest(json.loads(first)["spec"]) == spec_digest(spec)
