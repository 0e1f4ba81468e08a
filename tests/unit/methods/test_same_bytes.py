"""Killed anywhere, a job of each method ends with the same bytes.

That the same manifest gives the same bytes from scratch, and another seed others, is tried in
`tests/unit/simulation/test_same_bytes.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.silo import secret
from fedsilo.silo.runner import TaskRunner
from fedsilo.transforms.plan import JobPlan
from tests.federate import LocalSilo, drive, local_silos, open_engine
from tests.unit.methods.forms import COUNTING, FORMS, REDUNDANT_FORMS, form_spec, holding

LABELS = {"a": np.repeat([0, 1], 8), "b": np.repeat([2, 3], 6)}
"""Labels of two silos: the least with which an exchange has a middle."""

KEEPING = ["fedconcat", "fedavg", "ccvr-after-creff", "feddf", "moon-pool", "scamap", "fedbr-mixture"]
"""A form for each thing that is kept between rounds, and where."""

IN_ANY_PHASE = [
    pytest.param(form, marks=[pytest.mark.thorough] if place else []) for place, form in enumerate(KEEPING)
]
AGAIN_AND_AGAIN = [
    pytest.param(form, marks=[] if form in KEEPING else [pytest.mark.thorough])
    for form in sorted(FORMS.keys() - REDUNDANT_FORMS)
]


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What silos draw from no seed of the job, so that runs can be compared."""
    monkeypatch.setattr(secret, "draw", lambda: bytes(secret.SECRET_BYTES))


class Site:
    """Aggregator and silos of one job under one directory, which is all that a crash leaves of them."""

    def __init__(self, directory: Path, spec: FederatedJobSpec, answering: Mapping[str, TaskRunner]) -> None:
        self.directory, self.spec, self.answering = directory, spec, answering

    def open(self, acknowledged: Mapping[str, str | None]) -> tuple[RoundEngine, list[LocalSilo]]:
        silos = local_silos(self.directory, self.answering)
        for silo in silos:  # a guard keeps it in a file
            silo.acknowledged = acknowledged.get(silo.reference)
        return open_engine(self.directory / "aggregator", self.spec), silos

    def finish(self, acknowledged: Mapping[str, str | None]) -> str:
        """Drive the job to its end from wherever the directory stands; see `digest`."""
        engine, silos = self.open(acknowledged)
        drive(engine, silos)
        return digest(engine, silos)

    def copied_site(self, directory: Path) -> Site:
        shutil.copytree(self.directory, directory)
        return Site(directory, self.spec, self.answering)


def digest(engine: RoundEngine, silos: Sequence[LocalSilo]) -> str:
    """Digest of the model of a job that has ended, and of what the silos keep."""
    assert engine.result is not None, engine.failure
    found = hashlib.sha256(engine.result.sha256.encode())
    for private in (silo.private_state for silo in silos):
        found.update(repr(sorted(private.values.items())).encode())
        for name in sorted(private.trees):
            found.update(name.encode())
            for tensor, array in private.tree(name).items():
                found.update(tensor.encode() + array.tobytes())
    return found.hexdigest()


def crashes(site: Site, into: Path) -> Iterator[tuple[Site, dict[str, str | None]]]:
    """Copies of a running job, with what the silos knew to be acknowledged.

    One after each answer, so in the middle of every exchange; and while a closed round is settled, one before every
    commit, when new trees and the history are written already, and one before each file of the model.
    """
    engine, silos = site.open({})
    names = (str(into / f"{number}") for number in range(10_000))
    found: list[tuple[Site, dict[str, str | None]]] = []

    def crash() -> None:
        found.append((site.copied_site(Path(next(names))), acknowledged_of(silos)))

    while not engine.ended:
        for silo in silos:
            if silo.answer(engine):
                crash()
        settle(site, engine, crash)
    assert engine.result is not None, engine.failure
    yield from found


def acknowledged_of(silos: Sequence[LocalSilo]) -> dict[str, str | None]:
    """What each silo knows to be acknowledged."""
    return {silo.reference: silo.acknowledged for silo in silos}


def settle(site: Site, engine: RoundEngine, before_commit: Callable[[], None]) -> None:
    """Settle what can be, and call this before each file of the aggregator's is committed."""

    def flush(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if site.directory / "aggregator" in (path, path.parent) and path.suffix == ".tmp":
            before_commit()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        engine.settle()


def killed_again_and_again(site: Site, into: Path) -> tuple[str, list[str]]:
    """Digest of a job that goes on from a copy after each answer, and again while each closed round is settled.

    :returns: the digest, and the phase in which each kill came.
    """
    phases: list[str] = []
    killed = False  # while the present round was settled
    engine, silos = site.open({})
    while not engine.ended:
        phase = engine.current_exchange.exchange.phase.name if engine.current_exchange else "end"
        crashed = into / str(len(phases))
        if any(silo.answer(engine) for silo in silos):
            site.copied_site(crashed)
            killed = False
        else:
            settle(site, engine, partial(_copied_once, site, crashed) if not killed else lambda: None)
            killed = crashed.exists()
        if crashed.exists():
            phases.append(phase)
            site = Site(crashed, site.spec, site.answering)
            engine, silos = site.open(acknowledged_of(silos))
    return digest(engine, silos), phases


def _copied_once(site: Site, directory: Path) -> None:
    if not directory.exists():
        site.copied_site(directory)


@pytest.mark.parametrize("form", AGAIN_AND_AGAIN)
def test_killed_again_and_again_a_job_ends_with_the_same_bytes(tmp_path: Path, form: str) -> None:
    """What a half of a method keeps elsewhere than in its state would be lost each time."""
    spec = form_spec(form, list(LABELS))
    answering = holding(tmp_path, spec, LABELS)
    undisturbed = Site(tmp_path / "undisturbed", spec, answering).finish({})
    found, phases = killed_again_and_again(Site(tmp_path / "again", spec, answering), tmp_path / "crashes")
    assert found == undisturbed
    exchanges = 1 if form in COUNTING else 4
    assert len(phases) >= exchanges * (len(LABELS) + 1)
    assert set(phases) >= {exchange.phase.name for exchange in JobPlan.of(spec).exchanges}


@pytest.mark.parametrize("form", IN_ANY_PHASE)
def test_killed_once_in_any_phase_a_job_ends_with_the_same_bytes(tmp_path: Path, form: str) -> None:
    spec = form_spec(form, list(LABELS))
    answering = holding(tmp_path, spec, LABELS)
    undisturbed = Site(tmp_path / "undisturbed", spec, answering).finish({})
    found = list(crashes(Site(tmp_path / "again", spec, answering), tmp_path / "crashes"))
    assert len(found) >= 4 * (len(LABELS) + 1) + 2
    positions = set()
    for crashed, acknowledged in found:
        engine, _ = crashed.open(acknowledged)
        positions.add(engine.current_exchange.exchange.phase.name if engine.current_exchange else "end")
        assert crashed.finish(acknowledged) == undisturbed, crashed.directory.name
    assert positions >= {line["phase"] for line in engine.history()}


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["fedavg", "moon"])
def test_what_the_optimiser_keeps_survives_a_kill(tmp_path: Path, form: str) -> None:
    """The method may keep nothing itself, or replace its state as a whole."""
    optimizer = {"name": "adamw", "learningRate": 0.01, "state": "keep"}
    training = {"rounds": 3, "device": "cpu", "optimizer": optimizer}
    spec = form_spec(form, list(LABELS), training=training)
    answering = holding(tmp_path, spec, LABELS)
    undisturbed = Site(tmp_path / "undisturbed", spec, answering).finish({})
    found = list(crashes(Site(tmp_path / "again", spec, answering), tmp_path / "crashes"))
    for crashed, acknowledged in found[4 :: len(found) // 3]:
        assert crashed.finish(acknowledged) == undisturbed, crashed.directory.name
    reset = form_spec(form, list(LABELS), training=training | {"optimizer": optimizer | {"state": "reset"}})
    (tmp_path / "reset").mkdir()
    answering = holding(tmp_path / "reset", reset, LABELS)
    assert Site(tmp_path / "reset", reset, answering).finish({}) != undisturbed
