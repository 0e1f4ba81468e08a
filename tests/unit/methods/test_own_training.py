"""A job's own training in whole jobs: as built in, in every way of running, through a kill, and refused by methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsilo.errors import ManifestInvalid, SiloFailed
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import initial_model, to_tree
from fedsilo.local.baseline import train_locally
from fedsilo.methods import registry
from fedsilo.methods.checks import check_training
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.traits import TrainingTraits
from fedsilo.simulation.execution import ExecutionPlan
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature
from fedsilo.wire.tensors import TensorSpec
from tests.federate import bound_method, federate, job_spec, runners, skewed_silos
from tests.pages import blocks
from tests.unit.methods.forms import form_spec, holding
from tests.unit.methods.test_same_bytes import LABELS, Site, crashes
from tests.unit.simulation.digits import manifest_of, sharing

TRAINERS = "python:tests.unit.learning.trainers:"
PLAIN_METHODS = {
    "ccvr",
    "creff",
    "fedavg",
    "fedavgm",
    "fedaws",
    "fedbe",
    "feddf",
    "fedopt",
    "local",
    "tau-norm",
}


@pytest.fixture
def of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The plain loop of docs/training.md, installed."""
    (tmp_path / "code").mkdir()
    (code,) = [block for block in blocks("docs/training.md", "python") if "data.train.batches(" in block]
    (tmp_path / "code" / "training_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield "python:training_of_the_page:train"


def test_the_loop_of_the_page_for_several_gpus_learns_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several it is `DistributedDataParallel`, as in `unit/agent/test_ranks`; the page's own runs here."""
    (code,) = [block for block in blocks("docs/training.md", "python") if "DistributedSampler(" in block]
    (tmp_path / "loop_for_several_gpus.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    manifest = manifest_of(
        sharing(2), training={"rounds": 2, "trainer": "python:loop_for_several_gpus:train"}
    )
    first, second = simulate(manifest, tmp_path, tmp_path / "run").history()
    assert second["training"]["loss"] < first["training"]["loss"]


@pytest.mark.parametrize("form", ["fedavg", "creff", "ccvr"])
def test_the_loop_of_the_page_gives_the_bytes_of_the_built_in_one(
    tmp_path: Path, of_the_page: str, form: str
) -> None:
    digests = []
    for trainer in (None, of_the_page):
        training = {"rounds": 2, "device": "cpu", "optimizer": {"momentum": 0.9}, "trainer": trainer}
        spec = form_spec(form, list(LABELS), training=training)
        directory = tmp_path / str(trainer is None)
        directory.mkdir()
        digests.append(Site(directory, spec, holding(directory, spec, LABELS)).finish({}))
    assert digests[0] == digests[1]


def test_what_it_keeps_survives_a_kill(tmp_path: Path) -> None:
    spec = form_spec(
        "fedavg", list(LABELS), training={"rounds": 3, "device": "cpu", "trainer": f"{TRAINERS}counting"}
    )
    answering = holding(tmp_path, spec, LABELS)
    site = Site(tmp_path / "undisturbed", spec, answering)
    undisturbed = site.finish({})
    found = list(crashes(Site(tmp_path / "again", spec, answering), tmp_path / "crashes"))
    for crashed, acknowledged in found[1 :: len(found) // 4]:
        assert crashed.finish(acknowledged) == undisturbed, crashed.directory.name


def test_in_memory_it_keeps_the_same(tmp_path: Path) -> None:
    """Every weight has grown by 1 + 2 + 3 after three rounds of counting."""
    manifest = manifest_of(sharing(2), training={"rounds": 3, "trainer": f"{TRAINERS}counting"})
    done = simulate(manifest, tmp_path, tmp_path / "run")
    assert {float(state.tree("trainer")["rounds"][0]) for state in done.private.values()} == {3}
    assert [line["training"]["loss"] for line in done.history()] == [1, 2, 3]


def test_what_it_does_not_give_back_is_forgotten(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(2), training={"rounds": 4, "trainer": f"{TRAINERS}remembering_once"})
    done = simulate(manifest, tmp_path, tmp_path / "run")
    assert [line["training"]["loss"] for line in done.history()] == [0, 1, 0, 1]


def test_its_metrics_reach_the_history_as_the_job_names_them(tmp_path: Path) -> None:
    training = {"rounds": 1, "trainer": f"{TRAINERS}measuring", "trainerMetrics": ["dice", "examples_seen"]}
    done = simulate(manifest_of(sharing(2), training=training), tmp_path, tmp_path / "run")
    [line] = done.history()
    sizes = line["samples"]
    assert {silo: figures["examples_seen"] for silo, figures in line["silos"].items()} == sizes
    mean = sum(n * n for n in sizes.values()) / sum(sizes.values())
    assert line["training"] == {"dice": 0.5, "examples_seen": pytest.approx(mean), "loss": 1.0}


@pytest.mark.parametrize("name", sorted(PLAIN_METHODS))
def test_its_metrics_are_in_the_contract_of_the_steps_that_train(name: str) -> None:
    """And in no other; a job that declares none has the contract that it always had."""
    training = {"rounds": 2, "trainer": f"{TRAINERS}measuring"}
    method = bound_method(name, training=training)
    plain = JobPlan(method)
    declaring = JobPlan(
        bound_method(name, training={**training, "trainerMetrics": ["dice", "examples_seen"]})
    )
    for step in method.steps():
        before, declared = plain.step(step).names, declaring.step(step)
        assert before == method.steps()[step].names
        assert declared.names == (*before, *(("dice", "examples_seen") if "loss" in before else ())), step
    assert declaring.step(EVALUATE) == plain.step(EVALUATE)
    signature = ModelSignature((TensorSpec("w", (2,), "float32"),), 4, 5)
    contract = declaring.contract("train", signature, {})
    assert contract.metrics == ("dice", "examples_seen", "loss")
    assert contract.digest() != plain.contract("train", signature, {}).digest()


def test_each_silo_alone_is_trained_by_it_too() -> None:
    """Counting gives 1 + 2 + 3 in each of both places; what the optimiser keeps is kept there too."""
    spec = job_spec("fedavg", 1, 3, training={"trainer": f"{TRAINERS}counting", "rounds": 3, "device": "cpu"})
    rows = Examples(torch.rand(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4)
    data = (rows, rows.take(np.array([], np.int64)))
    trained = to_tree(train_locally(spec, "silos/a", data))
    for name, array in initial_model(spec).items():
        np.testing.assert_allclose(trained[name], array + 6, rtol=1e-6)
    weights = []
    for state in ("keep", "reset"):
        training = {"optimizer": {"name": "adam", "state": state}, "rounds": 3, "device": "cpu"}
        weights.append(to_tree(train_locally(job_spec("fedavg", 1, 3, training=training), "silos/a", data)))
    assert any(not np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_function_that_diverges_ends_the_job_and_sends_nothing(tmp_path: Path) -> None:
    spec = job_spec("fedavg", ["a"], training={"trainer": f"{TRAINERS}diverging", "rounds": 1})
    silos = skewed_silos(tmp_path, {"a": [0, 1]})
    with pytest.raises(
        SiloFailed, match=r"returns tensor 'classifier\.weight' with NaN or infinity"
    ) as caught:
        federate(tmp_path / "job", spec, runners(spec, silos, tmp_path))
    assert caught.value.reason == "MethodError"
    assert not list((tmp_path / "job").rglob("*.safetensors"))


@pytest.mark.parametrize("name", sorted(registry.names()))
def test_methods_with_a_loss_of_their_own_refuse_it(name: str) -> None:
    faults = check_training(bound_method(name, training={"rounds": 1, "trainer": f"{TRAINERS}counting"}))
    assert [fault[0] for fault in faults] == ([] if name in PLAIN_METHODS else ["spec.training.trainer"])


def test_the_form_of_its_name_is_checked() -> None:
    for wrong in ("tests.trainers:train", "python:train", "python:tests.trainers:2nd"):
        method = bound_method("fedavg", training={"rounds": 1, "trainer": wrong})
        [(field, value, problem, _)] = check_training(method)
        assert (field, value, problem) == (
            "spec.training.trainer",
            wrong,
            "does not name a Python function",
        )


def test_a_method_that_brings_a_loss_is_not_overruled(tmp_path: Path) -> None:
    """Also where its declaration was not asked."""
    spec = job_spec("fedprox", ["a"], training={"rounds": 1, "trainer": f"{TRAINERS}counting"})
    with pytest.raises(ManifestInvalid, match="has no meaning in fedprox, whose silos train with a loss"):
        runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedsilo.methods.fedprox.FedProx.training", TrainingTraits(accepts_trainer=True))
        answering = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path)
    with pytest.raises(SiloFailed, match="has no meaning in fedprox, whose silos train with a loss"):
        federate(tmp_path / "job", spec, answering)


def test_several_silos_are_not_trained_at_once(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(2), training={"rounds": 1, "trainer": f"{TRAINERS}counting"})
    with pytest.raises(ManifestInvalid, match=r"spec\.training\.trainer trains one silo at a time"):
        simulate(manifest, tmp_path, tmp_path, ExecutionPlan(batch=2))


def test_weights_are_by_the_samples_that_it_states(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(2), training={"rounds": 1, "trainer": f"{TRAINERS}printing"})
    done = simulate(manifest, tmp_path, tmp_path / "run")
    assert set(done.history()[0]["samples"].values()) == {1} and np.isfinite(done.history()[0]["round"])
