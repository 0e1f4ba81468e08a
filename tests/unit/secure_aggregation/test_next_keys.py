"""Silos send the next sum's keys with their last message of a sum: four exchanges for five, and no key serves twice."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine import round_engine
from fedsilo.errors import ProvenanceInvalid
from fedsilo.methods.schedule import exchange_id, participants
from fedsilo.transforms.secure_sum import guard
from tests.federate import TASK_KEY, job_spec, references
from tests.unit.secure_aggregation.summed_job import IS_NOT_HEARD, IS_SILENT, SummedJob, sums_of
from tests.unit.verification.chains import Lines, edit_and_link, replay_directory, verify_directory


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def spec_of(silos: int, rounds: int, scored: bool = False, **participation: Any) -> FederatedJobSpec:
    more = {"data": {"validationFraction": 0.5}, "evaluation": {"every": 1}} if scored else {}
    return job_spec(
        "fedavg", silos, rounds, aggregation={"secure": True}, participation=participation, **more
    )


def test_a_job_of_n_sums_has_four_exchanges_for_each_and_one_more(tmp_path: Path) -> None:
    job = SummedJob(tmp_path, spec_of(4, rounds=2, scored=True))
    model = job.run()
    sums = ["r00001-train", "r00001-evaluate", "r00002-train", "r00002-evaluate"]
    steps = [f"{name}{step}" for name in sums for step in (".shares", "", ".survivors", ".unmask")]
    assert job.asked == ["r00001-train.keys", *steps]
    assert all((model[name] == array).all() for name, array in job.plain_model().items())


@pytest.mark.parametrize("does", [IS_SILENT, IS_NOT_HEARD])
def test_a_silo_that_drops_out_last_announces_its_keys_when_the_next_sum_begins(
    tmp_path: Path, does: str
) -> None:
    missed = {("r00001-train.unmask", "silos/s1"): does}
    job = SummedJob(tmp_path, spec_of(4, rounds=3, minSilos=3), missed)
    model = job.run()
    assert [name for name in job.asked if name.endswith("keys")] == ["r00001-train.keys", "r00002-train.keys"]
    assert [line["summed"]["silos"] for line in job.engine.history()] == [[*job.silos]] * 3, (
        "it is in all sums"
    )
    assert all((model[name] == array).all() for name, array in job.plain_model().items())


def test_a_guard_keeps_secrets_of_two_sums_between_them_and_of_one_otherwise(tmp_path: Path) -> None:
    job = SummedJob(tmp_path, spec_of(3, rounds=2))
    job.run()
    first, second, last = "r00001-train", "r00002-train", "r00002-evaluate"
    found = [kept for kept, again in zip(*[iter(job.secrets["silos/s0"])] * 2, strict=True) if kept == again]
    assert found == [
        *[[first]] * 4,
        [first, second],
        *[[second]] * 3,
        [last, second],
        *[[last]] * 4,
    ], "the last sum announces nothing"


def test_keys_whose_secrets_found_no_place_on_the_disk_are_not_announced(tmp_path: Path) -> None:
    job, last = SummedJob(tmp_path, spec_of(3, rounds=1)), "r00001-train.unmask"

    def fill_disk(path: Path, document: Any, durable: bool = True) -> None:
        assert durable and path.stem == "r00001-evaluate" and document["told"] == {}
        raise OSError(errno.ENOSPC, "No space left on device")

    job.run_until(last)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(guard, "write_with_digest", fill_disk)
        job.answer("silos/s0", last)
    job.run()
    assert [name for name in job.asked if name.endswith("keys")] == ["r00001-train.keys"]


def test_a_silo_announces_keys_for_the_next_sum_that_it_is_drawn_for(tmp_path: Path) -> None:
    """Half of six silos take part in each round: keys are asked for until each was drawn once, and never after."""
    job = SummedJob(tmp_path, spec_of(6, rounds=8, fraction=0.5))
    job.run()
    drawn = [set(participants(job.spec, whole, job.silos)) for whole in sums_of(job.exchanges)]
    assert drawn.pop() == set(job.silos), "the scores of the last model"
    new = [bool(one - set().union(*drawn[:place])) for place, one in enumerate(drawn)]
    asked = [f"{exchange_id(whole)}.keys" in job.asked for whole in sums_of(job.exchanges)]
    assert asked == [*new, False]
    assert 1 < sum(new) < len(new), "or the seed shows nothing"


def test_announcements_that_do_not_hold_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shares beside them hold, and count."""
    job = SummedJob(tmp_path, spec_of(4, rounds=2))
    honest = job.vector

    def flip_last_bit(silo: str, task: Any, contract: Any) -> np.ndarray:
        vector = honest(silo, task, contract).copy()
        if task.task == "r00001-train.unmask-s2":
            vector[-1] ^= 1
        return vector

    monkeypatch.setattr(job, "vector", flip_last_bit)
    model = job.run()
    assert "r00002-train.keys" in job.asked
    assert all((model[name] == array).all() for name, array in job.plain_model().items())


@settings(max_examples=8)
@given(data=st.data())
def test_no_key_serves_two_sums_whoever_drops_out_and_whatever_is_started_again(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sums are right to the last bit, and keys are asked for where a silo of the sum has not announced its own."""
    silos, fraction = data.draw(st.sampled_from([(4, 1.0), (5, 1.0), (6, 0.7)]))
    drawn = int(np.ceil(fraction * silos))
    spec = spec_of(
        silos, data.draw(st.integers(1, 3)), data.draw(st.booleans()), fraction=fraction, minSilos=drawn - 1
    )
    job = SummedJob(tmp_path_factory.mktemp("job"), spec)
    misses, expected = {}, dict[str, bool]()
    announced = dict[str, str]()
    for whole in sums_of(job.exchanges):
        name, taking_part = exchange_id(whole), participants(spec, whole, references(spec))
        expected[name] = any(announced.get(silo) != name for silo in taking_part)
        left = set(taking_part)
        for step in (".keys", ".shares", "", ".survivors", ".unmask"):
            if step == ".keys" and not expected[name]:
                continue
            if len(left) > spec.participation.quorum(len(taking_part)) and data.draw(st.booleans()):
                gone = data.draw(st.sampled_from(sorted(left)))
                misses[name + step, gone] = data.draw(st.sampled_from([IS_SILENT, IS_NOT_HEARD]))
                left.discard(gone)
        later = list(sums_of(job.exchanges))[list(sums_of(job.exchanges)).index(whole) + 1 :]
        for silo in taking_part:
            following = (exchange_id(one) for one in later if silo in participants(spec, one, job.silos))
            announced[silo] = next(following, "") if silo in left else ""
    job.misses = misses
    model = job.run(data.draw(st.lists(st.sampled_from([exchange_id(each) for each in job.exchanges]))))

    assert {name: f"{name}.keys" in job.asked for name in expected} == expected
    assert all((model[name] == array).all() for name, array in job.plain_model().items())
    keys = [
        row[first : first + 32]
        for rows in job.announced.values()
        for row in rows.values()
        for first in (0, 32, 64)
    ]
    assert len(set(keys)) == len(keys), "two public keys and a commitment of each silo in each sum"
    assert all(len(kept) <= 2 for found in job.secrets.values() for kept in found)


@pytest.fixture(scope="module")
def kept_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an aggregator; of four silos one drops out last in round 1 of three."""
    missed = {("r00001-train.unmask", "silos/s3"): IS_SILENT}
    spec = spec_of(4, rounds=3, minSilos=3)
    spec = spec.model_copy(update={"aggregator": spec.aggregator.model_copy(update={"keep_updates": True})})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        job = SummedJob(tmp_path_factory.mktemp("kept"), spec, missed)
        job.run()
    return job.directory / "aggregator"


def test_a_chain_lacks_the_exchanges_that_were_passed_over_and_replays(kept_job: Path) -> None:
    chain = verify_directory(kept_job)
    assert [
        found.line.exchange for found in chain.exchanges if found.exchange.phase.step == "secure-keys"
    ] == [
        "r00001-train.keys",
        "r00002-train.keys",
    ]
    replay_directory(kept_job)


def _without_task_of_s3(line: dict[str, Any]) -> None:
    for part in ("tasks", "updates"):
        line[part].pop("silos/s3", None)


@pytest.mark.parametrize(
    ("lacking", "change", "message"),
    [
        ("r00003-train.shares", lambda _: None, r"round 3 \(r00003-train.shares\): is r00003-train$"),
        ("r00001-train.keys", lambda _: None, r"round 1 \(r00001-train.keys\): is r00001-train.shares$"),
        (None, _without_task_of_s3, r"r00003-train.shares\): silo silos/s3 was drawn and not asked"),
    ],
)
def test_a_chain_that_lacks_more_is_refused(
    kept_job: Path, tmp_path: Path, lacking: str | None, change: Any, message: str
) -> None:
    """Where keys were not asked for, all silos of the sum have announced theirs, and all are asked."""
    directory = Path(shutil.copytree(kept_job, tmp_path / "aggregator"))

    def take_out(lines: Lines) -> None:
        change(next(line for line in lines if line.get("exchange") == "r00003-train.shares"))
        lines[:] = [line for line in lines if line.get("exchange") != (lacking or "nothing")]

    edit_and_link(directory, take_out, TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=message):
        verify_directory(directory)


def test_a_checkpoint_is_kept_after_a_crash_where_an_exchange_is_passed_over(tmp_path: Path) -> None:
    spec = spec_of(3, rounds=2)
    spec = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"checkpoints": 1})})
    job, kept = SummedJob(tmp_path, spec), tmp_path / "aggregator" / "checkpoints"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(round_engine, "write_checkpoint", lambda *_: None)
        job.run_until("r00002-train.shares")
    assert not kept.exists()
    job.open_engine()
    assert {path.stem for path in kept.iterdir()} == {"round-00001"}
