"""Separate processes over HTTPS and one process give the same bytes, whatever the environment.

Separate processes run one job for each kind of state that goes through files; that every method gives the same bytes
through signed files is proved without processes in `tests/unit/simulation/test_same_bytes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fedsilo.api.common import Metadata
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.methods import registry
from fedsilo.methods.method import averaging_of
from tests.federate import bound_method, job_spec, skewed_silos
from tests.integration.local.conftest import selected_values
from tests.integration.local.runs import PATIENCE_SECONDS, end, run, start
from tests.unit.methods.forms import FORMS, ROUNDS

pytestmark = pytest.mark.timeout(900)  # the first test waits for all jobs in one process

CLASSES = {"north": [0, 1, 2], "south": [2, 3]}
OF_A_SECRET = ("fedconcat-noise",)
"""Forms in which silos draw what does not follow from the job's seed: no two runs give the same bytes."""

OWN_TASKS = ("fedbr-mixture",)
"""Forms that silos answer as another, and whose tasks hold something else."""

KEPT_STATES = {
    "a model at the aggregator": "fedavg",
    "a model for each cluster, and who is in it": "fedconcat",
    "features, gradients and statistics of classes; a second stage": "ccvr-after-creff",
    "a silo's previous model": "moon",
    "control variates at both ends, and a personal model": "scamap",
    "data that a silo makes, and tasks that carry them": "fedbr-mixture",
}
"""What is kept between rounds, and where -> a form that keeps it."""


def spec_of(method: str, config: Mapping[str, Any]) -> FederatedJobSpec:
    averaging = averaging_of(bound_method(config["after"]["name"] if "after" in config else method))
    return job_spec(
        method,
        list(CLASSES),
        ROUNDS,
        method={"config": config},
        data={"validationFraction": 0.25},
        aggregation={"weights": averaging},
    )


def differing_in_what_they_declare() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Every method, in one form for each declaration of what its silos send and keep."""
    found: dict[str, str] = {}
    for form, (name, config) in FORMS.items():
        method = registry.bind(spec_of(name, config))
        sent = method.steps(), method.phases()
        found.setdefault(repr((name, *sent, method.models.personal is not None)), form)
    return {form: FORMS[form] for form in (*found.values(), *OWN_TASKS) if form not in OF_A_SECRET}


JOBS = differing_in_what_they_declare()

QUICK_FORMS = ("fedavg", "scamap")
"""Forms that `make test` tries: the least that is kept, and the most."""


def in_tiers(forms: Iterable[str]) -> list[Any]:
    """The forms as parameters, of which all but the quick ones are thorough."""
    return [pytest.param(form, marks=() if form in QUICK_FORMS else pytest.mark.thorough) for form in forms]


@pytest.fixture(scope="module")
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A manifest for each form that a selected test looks at, of two silos that differ in their classes."""
    forms = selected_values(request, "form")
    directory = tmp_path_factory.mktemp("manifests")
    members = skewed_silos(directory, CLASSES)
    for form in forms:
        method, config = JOBS[form]
        job = FederatedJob(metadata=Metadata(name=form, namespace="jobs"), spec=spec_of(method, config))
        documents = [plain_document(document) for document in (*members, job)]
        (directory / f"{form}.yaml").write_text(yaml.safe_dump_all(documents))
    return {form: directory / f"{form}.yaml" for form in forms}


def all_runs(manifests: Mapping[str, Path], directory: Path, *options: str) -> Path:
    """The directory of all jobs, run by one command."""
    first, *others = manifests.values()
    more = [option for path in others for option in ("-f", str(path))]
    place = directory if others else directory / first.stem  # one job alone gets no folder in it
    ended = end(start(first, place, "--in-process", *options, *more), place, PATIENCE_SECONDS * 3)
    assert ended.code == 0, ended.out + ended.err
    return directory


@pytest.fixture(scope="module")
def in_one_process(manifests: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_runs(manifests, tmp_path_factory.mktemp("one") / "runs")


@pytest.fixture(scope="module")
def with_workers(manifests: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_runs(manifests, tmp_path_factory.mktemp("workers") / "runs", "--workers", "2")


def plain_document(document: BaseModel) -> Any:
    return document.model_dump(by_alias=True, mode="json", exclude_none=True)


def invariant_results(workdir: Path) -> dict[str, Any]:
    """What a run leaves that must not depend on how it was run."""
    described = json.loads((workdir / "model.json").read_text())
    described["job"].pop("uid")
    described.pop("updates")  # in one process nothing is signed
    lines = [json.loads(line) for line in (workdir / "history.jsonl").read_text().splitlines()]
    history = [{key: line[key] for key in line.keys() - {"updates", "bytes", "seconds"}} for line in lines]
    own = {str(path.relative_to(workdir)): path.read_bytes() for path in workdir.glob("silos/*/state/*.*")}
    model = (workdir / "model.safetensors").read_bytes()
    return {"model": model, "described": described, "history": history, "silos' own models": own}


@pytest.mark.parametrize("form", in_tiers(JOBS))
def test_workers_change_no_byte_and_only_methods_that_say_so_leave_models_of_the_silos(
    in_one_process: Path, with_workers: Path, form: str
) -> None:
    wanted = invariant_results(in_one_process / form)
    assert invariant_results(with_workers / form) == wanted
    kept = (method := registry.bind(spec_of(*JOBS[form]))).models.in_silos(method.spec)
    files = [f"silos/{silo}/state/personal.{kind}" for silo in CLASSES for kind in ("json", "safetensors")]
    assert sorted(wanted["silos' own models"]) == (files if kept else [])


@pytest.mark.parametrize("form", in_tiers(KEPT_STATES.values()))
def test_separate_processes_and_one_give_the_same_bytes(
    tmp_path: Path, manifests: dict[str, Path], in_one_process: Path, form: str
) -> None:
    # Every process has the threads that the job says, one, whatever its environment says; see also `tests.warm`.
    environment = {"OMP_NUM_THREADS": "2"} if form == "fedavg" else {}
    processes = run(manifests[form], tmp_path / "processes", environment=environment)
    assert processes.code == 0, processes.out + processes.err
    assert invariant_results(processes.workdir) == invariant_results(in_one_process / form)
