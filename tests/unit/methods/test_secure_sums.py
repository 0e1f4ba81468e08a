"""A method says whether sums over all silos are enough for its server half, and then ends where the plain job does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.aggregation import RuleSpec
from fedsilo.api.communication import CommunicationSpec
from fedsilo.api.data import PreprocessingSpec
from fedsilo.api.loading import JobManifest
from fedsilo.engine.context import JobContext
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import JobFailed, MethodError
from fedsilo.methods import registry
from fedsilo.methods.dann.declaration import DANN
from fedsilo.methods.interface import Assignment, Exchange
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from fedsilo.secure_aggregation.plausibility import implausible_sum_problem
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.conflicts import conflicts_of
from fedsilo.transforms.secure_sum.protocol import SecureSums
from fedsilo.transforms.secure_sum.steps import CONFIRMED
from fedsilo.transforms.transform import Broadcast, Signers
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire import open_blob
from fedsilo_operator.workloads.aggregator import PERMANENT_EXIT_CODES
from tests.federate import job_spec, references, silo_key
from tests.unit.methods.forms import FORMS, each_form, form_manifest, form_spec

LABELS = {
    "a": np.repeat([0, 1], 8),
    "b": np.repeat([2, 3], 6),
    "c": np.repeat([0, 1, 2], 4),
    "d": np.repeat([1, 3], 5),
}


def changed_manifest(manifest: JobManifest, **sections: Any) -> JobManifest:
    """The job with other sections of its specification."""
    spec = manifest.job.spec.model_copy(update=sections)
    return JobManifest(manifest.file, manifest.job.model_copy(update={"spec": spec}), manifest.silos)


def both_models(manifest: JobManifest, directory: Path) -> tuple[Tree, Tree]:
    """Models of the job with sums alone and of the plain one."""
    found = []
    for name, one in (("summed", secure_manifest(manifest)), ("plain", manifest)):
        found.append(simulated_model(one, directory, name))
    return found[0], found[1]


def simulated_model(manifest: JobManifest, directory: Path, name: str) -> Tree:
    """What a job ends with, in a directory of this name."""
    result = simulate(manifest, directory, directory / name).result
    assert result is not None
    return open_blob(result.path).tree()


def secure_manifest(manifest: JobManifest) -> JobManifest:
    """The job with secure aggregation, whose aggregator sees sums alone."""
    aggregation = manifest.job.spec.aggregation.model_copy(update={"secure": True})
    return changed_manifest(manifest, aggregation=aggregation)


def summed_forms() -> list[str]:
    """Forms that a job may have whose aggregator sees sums alone."""
    found = []
    for form in FORMS:
        spec = form_spec(form, list(LABELS))
        aggregation = spec.aggregation.model_copy(update={"secure": True})
        if registry.bind(spec.model_copy(update={"aggregation": aggregation})).reads is not Updates:
            found.append(form)
    return found


SUMMED_FORMS = summed_forms()


AskedTasks = list[tuple[Exchange, State, Mapping[str, Assignment]]]


@dataclass(frozen=True)
class SummedJob:
    """A job with sums alone that has ended.

    :param asked: everything that it assigned to its silos.
    """

    manifest: JobManifest
    directory: Path
    model: Tree
    asked: AskedTasks


@pytest.fixture(scope="module")
def summed_job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SummedJob:
    """The job of a form, run once for all that is looked at."""
    form = request.param
    directory, asked = tmp_path_factory.mktemp("summed"), AskedTasks()
    manifest, assign = form_manifest(directory, form, LABELS), Workflow.assign

    def record_assignment(self: Workflow, state: State, exchange: Exchange, silos: Sequence[str]) -> Any:
        broadcast = assign(self, state, exchange, silos)
        asked.append((exchange, broadcast.state, broadcast.tasks))
        return broadcast

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workflow, "assign", record_assignment)
        patch.setattr(os, "fsync", lambda _: None)
        model = simulated_model(secure_manifest(manifest), directory, "summed")
    assert asked
    return SummedJob(manifest, directory, model, asked)


each_summed_form = pytest.mark.parametrize("summed_job", each_form(SUMMED_FORMS), indirect=True)


@each_summed_form
def test_sums_end_in_the_model_of_the_plain_job(summed_job: SummedJob) -> None:
    ours, theirs = summed_job.model, simulated_model(summed_job.manifest, summed_job.directory, "plain")
    assert ours.keys() == theirs.keys()
    for name in ours:
        # float32 rounds at 6e-8, over three rounds of training.
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)


@pytest.mark.parametrize("form", ["fedavgm", "scaffold", "fednova"])
def test_a_model_that_is_sent_with_a_loss_is_compared_as_silos_saw_it(tmp_path: Path, form: str) -> None:
    communication = CommunicationSpec.model_validate({"download": {"encoding": "int8"}})
    manifest = changed_manifest(form_manifest(tmp_path, form, LABELS), communication=communication)
    ours, theirs = both_models(manifest, tmp_path)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)


def test_preprocessing_follows_from_sums(tmp_path: Path) -> None:
    manifest = form_manifest(tmp_path, "fedavg", LABELS)
    data = manifest.job.spec.data.model_copy(update={"preprocessing": PreprocessingSpec(standardise=True)})
    ours, theirs = both_models(changed_manifest(manifest, data=data), tmp_path)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)
    unprepared = simulate(manifest, tmp_path, tmp_path / "unprepared").result
    assert unprepared is not None
    assert any((open_blob(unprepared.path).tree()[name] != ours[name]).any() for name in ours)


def test_norm_clipping_is_of_models_and_not_of_scores(tmp_path: Path) -> None:
    manifest = form_manifest(tmp_path, "fedavg", LABELS)
    spec = manifest.job.spec
    manifest = changed_manifest(
        manifest,
        aggregation=spec.aggregation.model_copy(
            update={"rule": RuleSpec(name="norm-clipping", norm=0.5), "weights": "uniform"}
        ),
        evaluation=spec.evaluation.model_copy(update={"metrics": ("recall",)}),
        data=spec.data.model_copy(
            update={"preprocessing": PreprocessingSpec(standardise=True), "validation_fraction": 0.25}
        ),
    )
    ours, theirs = both_models(manifest, tmp_path)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)


@each_summed_form
def test_all_silos_of_a_sum_are_sent_the_same_but_for_what_their_guards_derive(summed_job: SummedJob) -> None:
    """Masks of silos that were sent different things do not cancel."""
    method = registry.bind(secure_manifest(summed_job.manifest).job.spec)
    for exchange, _, assignments in summed_job.asked:
        common = []
        for silo, given in assignments.items():
            own = method.silo_settings(exchange, silo)
            assert {name: given.settings[name] for name in own} == own
            common.append(replace(given, settings={n: v for n, v in given.settings.items() if n not in own}))
        assert all(other == common[0] for other in common)


@each_summed_form
def test_no_model_is_handed_out_twice_for_the_same_step(summed_job: SummedJob) -> None:
    """A guard refuses it where sums may be over different silos; per-fedavg is refused there by its own check."""
    if summed_job.manifest.job.spec.method.name == "per-fedavg":
        return
    seen = dict[tuple[str, bytes], int]()
    for exchange, state, assignments in summed_job.asked:
        for name in {given.trees.get("model") for given in assignments.values()} - {None}:
            content = b"".join(array.tobytes() for array in state.tree(str(name)).values())
            round = seen.setdefault((exchange.phase.step, content), exchange.round)
            assert round == exchange.round, f"{exchange.phase.step} of round {exchange.round}"


def test_a_method_that_assigns_silos_different_settings_must_declare_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DANN, "silo_settings", Method.silo_settings)
    manifest = secure_manifest(form_manifest(tmp_path, "dann", LABELS))
    with pytest.raises(
        MethodError, match="method dann assigns silos/b other trees or settings than its declarat"
    ):
        simulate(manifest, tmp_path, tmp_path / "job")


def test_a_declaration_that_fails_to_say_the_settings_of_a_silo_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Mapping[str, Any]:
        raise KeyError("work")

    monkeypatch.setattr(DANN, "silo_settings", failing)
    manifest = secure_manifest(form_manifest(tmp_path, "dann", LABELS))
    with pytest.raises(MethodError, match="silo_settings of method dann failed: KeyError: 'work'"):
        simulate(manifest, tmp_path, tmp_path / "job")


@pytest.mark.parametrize("function", ["on_messages", "unmask_sum"])
def test_a_sum_that_does_not_hold_ends_the_job_for_good(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The updates are stored: started again, the aggregator would fold the same bytes to the same refusal."""
    spec = job_spec("fedavg", 3, aggregation={"secure": True})
    method, silos = registry.bind(spec), references(spec)
    signers = Signers("uid", {silo: silo_key(silo).verify_key for silo in silos})
    workflow = Workflow(method, JobContext.of(method, silos), signers=signers)

    def refuse_sum(*_: Any) -> Any:
        raise implausible_sum_problem("samples", 1e30, 3, 0.0, 3.0)

    monkeypatch.setattr(SecureSums, function, refuse_sum)
    exchange = workflow.exchanges[4 if function == "unmask_sum" else 0]
    state = workflow.start().with_trees(**{CONFIRMED: {silo: np.empty(0, np.uint8) for silo in silos}})
    with pytest.raises(
        JobFailed, match=r"^out-of-range: .* in the sum over 3 silos, samples is 1e\+30;"
    ) as ended:
        workflow.fold(state, exchange, InMemoryUpdates({}), Broadcast(state, {}))
    assert ended.value.exit_code in PERMANENT_EXIT_CODES


def test_per_fedavg_has_no_sums_over_fewer_than_all_silos(tmp_path: Path) -> None:
    spec = secure_manifest(form_manifest(tmp_path, "per-fedavg", LABELS)).job.spec
    assert not list(conflicts_of(registry.bind(spec)))
    fewer = spec.model_copy(update={"participation": spec.participation.model_copy(update={"min_silos": 2})})
    (fault,) = [found for found in conflicts_of(registry.bind(fewer)) if found[1] is True]
    assert fault[0] == "spec.aggregation.secure" and "per-fedavg has the last model scored twice" in fault[2]
