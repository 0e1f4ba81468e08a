"""Features of a job meet: every pair that is permitted gives the same bytes everywhere, every other pair is refused.

Pairs and what is refused are generated (`tests/feature_pairs.py`). The pairs that are permitted meet in jobs: in few of
many features, which real processes run too (`tests/integration/local/test_pairs.py`), and in more of three, where no
other feature hides what one does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.faults import Fault
from fedsilo.errors import ManifestInvalid
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods.state import State
from fedsilo.silo import secret
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.order import ORDER
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party.declaration import ThirdPartyTransform
from fedsilo.validation import validate
from tests.feature_pairs import (
    PERMITTED_PAIRS,
    REFUSED_PAIRS,
    VARIANTS,
    ChosenVariants,
    covering,
    document_with,
    documents_in,
    faults_of,
    job_with,
    manifest_in,
    name_of,
)
from tests.guarded import UID, check_of, run_guarded
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import JOB_REF
from tests.unit.verification.chains import replay_directory


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What silos draw from no seed of the job, so that both ways can be compared."""
    monkeypatch.setattr(secret, "draw", lambda: bytes(secret.SECRET_BYTES))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_every_transform_has_a_variant_and_every_variant_goes_with_another() -> None:
    found = {type(each) for variant in VARIANTS for each in JobPlan.of(job_with({variant}).spec).transforms}
    assert found | {ThirdPartyTransform} == set(ORDER)  # of which a package must be installed
    assert set().union(*PERMITTED_PAIRS) == VARIANTS.keys()


JOBS = [
    *(pytest.param(chosen, id=name_of(chosen)) for chosen in covering()),
    *(pytest.param(chosen, id=name_of(chosen), marks=pytest.mark.thorough) for chosen in covering(most=3)),
]


@pytest.mark.parametrize("chosen", JOBS)
def test_permitted_pairs_give_the_same_bytes_with_guards_simulated_and_replayed(
    tmp_path: Path, chosen: ChosenVariants
) -> None:
    manifest = manifest_in(tmp_path, chosen)
    done = run_guarded(tmp_path / "guarded", manifest, tmp_path)
    simulation = simulate(manifest, tmp_path, tmp_path / "simulated")
    assert done.engine.result is not None and simulation.result is not None
    assert simulation.result.sha256 == done.engine.result.sha256
    assert recorded_history(simulation) == recorded_history(done.engine)
    assert kept_state(simulation.private) == kept_state(done.private)
    replay_directory(done.directory)


def recorded_history(of: Any) -> list[dict[str, Any]]:
    """The history without what a simulation has not: digests and headers of signed updates, messages between guards."""
    differing = {"updates", "bytes"}
    return [{key: line[key] for key in line.keys() - differing} for line in of.history()]


def kept_state(private: Mapping[str, State]) -> dict[str, Any]:
    """Every bit that silos keep."""
    return {
        silo: (
            {
                tree: {name: (array.dtype, array.tobytes()) for name, array in state.tree(tree).items()}
                for tree in state.trees
            },
            state.values,
        )
        for silo, state in private.items()
    }


@pytest.mark.parametrize("pair", REFUSED_PAIRS, ids=name_of)
def test_a_refused_pair_is_refused_by_validation_operator_guard_and_simulation_in_the_same_words(
    tmp_path: Path, pair: ChosenVariants
) -> None:
    manifest = manifest_in(tmp_path, pair)
    found = [words(fault) for fault in validate(documents_in(manifest))]
    assert found == [words(fault) for fault in faults_of(pair)]

    job = JobHarness(
        document_with(pair) | {"metadata": {"name": JOB_REF.name, "namespace": JOB_REF.namespace}}
    )
    job.settle()
    (failed,) = [one for one in job.job["status"]["conditions"] if one["type"] == "Failed"]
    assert (failed["status"], failed["reason"]) == ("True", "ManifestInvalid")
    assert failed["message"] == "\n".join(f"FederatedJob {JOB_REF.name}: {text}" for text in found)

    place = RunDirectory(tmp_path / "run")
    place.write_inputs(manifest, UID, port=1)
    for silo in manifest.silos:
        with pytest.raises(ManifestInvalid) as refused:
            check_of(place, silo).require_consistent()
        assert str(refused.value) in found
    with pytest.raises(ManifestInvalid) as refused:
        simulate(manifest, tmp_path, tmp_path / "simulated")
    assert str(refused.value) in found


def words(fault: Fault) -> str:
    """A fault without the place of its document."""
    return replace(fault, file="", document="").line()
