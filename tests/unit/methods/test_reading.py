"""A method says what its server half reads by a type, and its half is handed an object with exactly these verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg, OneModel, OneModelServer
from fedsilo.methods.interface import Exchange, MethodConfig, ServerContext, ServerHalf
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.state import State, Tree
from fedsilo.methods.step import LOSS, Payload, Step
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.conflicts import check_job
from tests.federate import job_spec
from tests.unit.engine.synthetic import Diary
from tests.unit.methods.forms import FORMS, form_manifest, form_spec

LABELS = {"a": np.repeat([0, 1], 8), "b": np.repeat([2, 3], 6), "c": np.repeat([0, 1, 2], 4)}


def wants(half: ServerHalf[Any]) -> object:
    """What the half's own `aggregate` says."""
    hints = get_type_hints(type(half).aggregate)
    del hints["return"]
    return list(hints.values())[-1]


@pytest.mark.parametrize("form", FORMS)
def test_the_declaration_says_what_the_half_says(form: str) -> None:
    method = registry.bind(form_spec(form, list(LABELS)))
    wanted = wants(method.server())
    if isinstance(wanted, type):  # else it goes on to the half of another method
        assert issubclass(method.reads, wanted), "more verbs than the half asks for do no harm, fewer do"


def recording_updates(read: set[str]) -> type[Updates]:
    """Updates of which it is noted what is read of single silos."""

    class RecordingUpdates(Updates):
        @property
        @override
        def silos(self) -> tuple[str, ...]:
            read.add("silos")
            return super().silos

        @override
        def samples(self, silo: str) -> int:
            read.add("samples")
            return super().samples(silo)

        @override
        def mean(self, kind: str, silos: Sequence[str] | None = None, weights: str | None = None) -> Tree:
            if silos is not None or weights not in (None, self._rule):
                read.add("mean")
            return super().mean(kind, silos, weights)

        @override
        def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
            read.add("weighted sum")
            return super().weighted_sum(kind, weights)

    return RecordingUpdates


@pytest.mark.parametrize(
    "form", [form for form in FORMS if registry.bind(form_spec(form, list(LABELS))).reads is Updates]
)
def test_single_silos_are_seen_only_by_halves_that_look(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, read = form_manifest(tmp_path, form, LABELS), set[str]()
    monkeypatch.setattr(type(registry.bind(manifest.job.spec)), "reads", recording_updates(read))
    simulate(manifest, tmp_path, tmp_path / "job")
    assert read, "sums would do"


class Curious(OneModelServer):
    """A half that takes more than its declaration says."""

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, updates: Updates) -> State:
        return state.with_trees(model=updates.tensors(updates.silos[0], "model"))


def test_what_is_not_declared_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvg, "server", lambda self: Curious())
    monkeypatch.setattr(FedAvg, "reads", Sums)
    manifest = form_manifest(tmp_path, "fedavg", LABELS)
    with pytest.raises(
        MethodError, match=r"aggregate of method fedavg failed: .* Sums has no tensors; .* Updates, which has"
    ):
        simulate(manifest, tmp_path, tmp_path / "job")


def test_a_method_that_says_nothing_may_read_anything() -> None:
    class UndeclaredMethod(OneModel):
        @override
        def server(self) -> Any:
            return Curious()

    assert Diary(job_spec("fedavg", 2), MethodConfig()).reads is Updates
    assert UndeclaredMethod(job_spec("fedavg", 2), MethodConfig()).reads is Updates


def test_the_class_of_a_half_says_it_as_well() -> None:
    class Averaging(FedAvg):
        @override
        def server(self) -> AveragingServer:
            return AveragingServer()

    assert Averaging(job_spec("fedavg", 2), MethodConfig()).reads is Mean


class AveragingServer(OneModelServer):
    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, mean: Mean) -> State:
        return state.with_trees(model=mean.mean("model"))


def test_a_mean_beside_which_something_else_is_sent_is_none_of_models() -> None:
    """`spec.aggregation.rule` and noise on a silo's change are of models alone."""

    class MoreSums(FedAvg):
        @override
        def steps(self) -> Mapping[str, Step]:
            return {"train": Step((Payload("model"), Payload("class_counts", "count")), (LOSS,))}

    assert MoreSums(job_spec("fedavg", 2), MethodConfig()).reads is Sums


class Untold(OneModelServer):
    """A half that does not say what it reads."""

    def aggregate(self, job, state, exchange, updates):  # type: ignore[no-untyped-def]
        return state.with_trees(model=updates.mean("model"))


ANNOTATION_REMEDY = "annotate updates, the last parameter of its aggregate, with "


@pytest.mark.parametrize(
    ("sections", "remedy"),
    [
        (
            {"secure": True},
            ANNOTATION_REMEDY
            + "Sums if it reads no more than that; otherwise remove it, or use a method such as fedavg; ",
        ),
        (
            {"rule": {"name": "median"}},
            ANNOTATION_REMEDY
            + "Mean if it reads no more than that; otherwise remove it, or use a method such as fedavg",
        ),
    ],
)
def test_whoever_has_not_annotated_what_the_half_reads_is_told_to(
    sections: dict[str, Any], remedy: str
) -> None:
    class OfUntold(FedAvg):
        @override
        def server(self) -> Untold:
            return Untold()

    class UnannotatedMethod(FedAvg):
        @override
        def server(self):  # type: ignore[no-untyped-def]
            return Untold()

    spec = job_spec("fedavg", 4, aggregation=sections)
    (told,) = [fault[3] for fault in check_job(OfUntold(spec, MethodConfig()))]
    assert told.startswith(remedy)
    (told,) = [fault[3] for fault in check_job(UnannotatedMethod(spec, MethodConfig()))]
    assert told.startswith("annotate its server with the class of its half; otherwise remove it, ")


def test_whoever_has_said_what_the_half_reads_is_not_told_to_say_it() -> None:
    class OfCurious(OneModel):
        name = "curious"

        @override
        def server(self) -> Curious:
            return Curious()

    found = check_job(OfCurious(job_spec("fedavg", 4, aggregation={"secure": True}), MethodConfig()))
    assert [remedy[:20] for *_, remedy in found] == ["remove it, or use a "]
