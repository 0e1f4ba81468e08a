"""FedConcat and FedConcat-ID in the cases that papers leave out: absent silos, empty clusters, BatchNorm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.api.faults import ManifestFaults
from fedsilo.engine.context import JobContext
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.learning.models import Model, build_model, load_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods import registry
from fedsilo.methods.fedconcat.cluster_models import tree_of, trees
from fedsilo.methods.fedconcat_id.server import inferred_distributions
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State, Tree
from tests.federate import (
    Runner,
    bound_method,
    federate,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    references,
    runners,
    skewed_silos,
)
from tests.tiers import mark_thorough
from tests.unit.engine.synthetic import Failing
from tests.unit.methods.harness import answers


def concatenated_job(
    tmp_path: Path, classes_of: Mapping[str, list[int]], method: str = "fedconcat", **config: Any
) -> RoundEngine:
    config = {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2} | config
    privacy = {"minSamplesPerClass": config.pop("minimum", 1)}
    silos = skewed_silos(tmp_path, classes_of)
    spec = job_spec(method, list(classes_of), 4, method={"config": config}, privacy=privacy)
    return federate(tmp_path, spec, runners(spec, silos, tmp_path))


def test_silos_with_the_same_classes_share_a_cluster(tmp_path: Path) -> None:
    engine = concatenated_job(tmp_path, {"a": [0, 1], "b": [2, 3], "c": [0, 1], "d": [2, 3]})
    member = engine.state.values["member"]
    assert member == {"silos/a": 0, "silos/b": 1, "silos/c": 0, "silos/d": 1}
    assert model_of(engine)["classifier.weight"].shape == (4, 2 * 5)
    assert engine.rounds == 1 + 4


def test_distributions_that_nobody_may_disclose_are_one_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = concatenated_job(tmp_path, {"a": [0, 1], "b": [2, 3]}, minimum=100)
    assert engine.state.values["clusters"] == 1
    assert (
        "silo silos/a disclosed the count of no class: its label distribution counts as uniform"
        in caplog.text
    )
    assert "clusters: 1 instead of 2: no more label distributions differ" in caplog.text
    assert model_of(engine)["classifier.weight"].shape == (4, 5)


def test_one_class_silos_and_a_class_missing_everywhere(tmp_path: Path) -> None:
    engine = concatenated_job(tmp_path, {"a": [0], "b": [1], "c": [2]}, warmStart=True)
    assert all(np.isfinite(array).all() for array in model_of(engine).values())


def test_the_elbow_finds_the_number_of_clusters(tmp_path: Path) -> None:
    groups = {
        f"{letter}{n}": classes
        for letter, classes in (("a", [0]), ("b", [1]), ("c", [2, 3]))
        for n in range(3)
    }
    engine = concatenated_job(tmp_path, groups, clusters=6, choice="elbow")
    assert engine.state.values["clusters"] == 3


@pytest.mark.parametrize("method", ["fedconcat", "fedconcat-id"])
@pytest.mark.parametrize("variant", mark_thorough(["paper", "released"], {"released"}))
def test_both_forms_run_and_have_their_rounds(tmp_path: Path, method: str, variant: str) -> None:
    classes = {"a": [0, 1], "b": [2, 3], "c": [0, 1]}
    engine = concatenated_job(tmp_path, classes, method, variant=variant)
    extra = 0 if (method, variant) == ("fedconcat-id", "released") else 1
    assert engine.rounds == 4 + extra
    phases = [line["phase"] for line in engine.history()]
    assert phases[-2:] == ["classifier", "classifier"]


def test_settings_cannot_widen_the_contract() -> None:
    from fedsilo.wire import ModelSignature

    signature, method = (
        ModelSignature((), classes=3, feature=5),
        bound_method("fedconcat", config={"clusters": 2}),
    )
    assert method.dimensions(signature, {"clusters": 1})["stacked"] == 5
    assert method.dimensions(signature, {"clusters": 99})["stacked"] == 10
    assert method.dimensions(signature, {})["stacked"] == 10


def test_a_manifest_is_reported_what_does_not_add_up() -> None:
    config = {"clusters": 3, "encoderRounds": 2, "classifierRounds": 2}
    faults = bound_method("fedconcat", 2, 5, config=config).check()
    assert [(path, problem) for path, _, problem, _ in faults] == [
        ("spec.training.rounds", "is not encoderRounds + classifierRounds = 4"),
        ("spec.method.config.clusters", "is more than the 2 silos of spec.silos.refs"),
    ]


class AbsentSilo:
    """A silo that cannot answer from one phase on."""

    def __init__(self, runner: Runner, phase: str) -> None:
        self.runner, self.phase = runner, phase

    def run(self, task: SiloTask, private: State) -> Reply:
        if task.phase == self.phase:
            raise Failing("out of memory")
        return self.runner.run(task, private)


def test_a_cluster_without_an_answer_keeps_its_model(tmp_path: Path) -> None:
    classes = {"a": [0, 1], "b": [2, 3], "c": [0, 1]}
    config = {"clusters": 2, "encoderRounds": 2, "classifierRounds": 1}
    spec = job_spec("fedconcat", list(classes), 3, method={"config": config}, participation={"minSilos": 1})
    answering: dict[str, Runner] = dict(runners(spec, skewed_silos(tmp_path, classes), tmp_path))
    answering["silos/b"] = AbsentSilo(answering["silos/b"], "encoders")
    engine = federate(tmp_path, spec, answering)
    initial = build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")).state_dict()
    changed = [
        not np.array_equal(engine.state.tree(f"cluster/{n}")["encoder.0.weight"], initial["encoder.0.weight"])
        for n in range(2)
    ]
    assert changed == [True, False]


def test_a_silo_that_was_absent_when_clusters_formed_joins_the_largest(tmp_path: Path) -> None:
    classes = {"a": [0, 1], "b": [2, 3], "c": [0, 1], "d": [2, 3]}
    config = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1}
    spec = job_spec("fedconcat", list(classes), 2, method={"config": config}, participation={"minSilos": 1})
    answering: dict[str, Runner] = dict(runners(spec, skewed_silos(tmp_path, classes), tmp_path))
    answering["silos/b"] = AbsentSilo(answering["silos/b"], "distribution")
    engine = federate(tmp_path, spec, answering)
    assert engine.state.values["member"] == {"silos/a": 0, "silos/c": 0, "silos/d": 1}
    assert tree_of(engine.state, "silos/b") == "cluster/0"


def test_encoders_are_stacked_by_number_also_beyond_nine() -> None:
    names = [f"cluster/{number}" for number in range(12)]
    assert trees(["classifier", *sorted(names)]) == names


def test_the_last_stage_leaves_the_encoders_as_they_are_batchnorm_included(tmp_path: Path) -> None:
    """The released code lets BatchNorm's statistics drift across silos; here features come from evaluation mode."""
    classes = {"a": [0, 1], "b": [2, 3]}
    models = []
    for rounds in (1, 3):
        config = {"clusters": 2, "encoderRounds": 1, "classifierRounds": rounds}
        spec = job_spec(
            "fedconcat",
            list(classes),
            1 + rounds,
            method={"config": config},
            model={"name": f"python:{__name__}:normalised_network", "config": {}},
        )
        directory = tmp_path / str(rounds)
        directory.mkdir()
        models.append(
            model_of(federate(directory, spec, runners(spec, skewed_silos(directory, classes), directory)))
        )
    one, three = models
    assert any("running_mean" in name for name in one)
    for name in one:
        assert np.array_equal(one[name], three[name]) == name.startswith("encoder."), name


def normalised_network(input_shape: tuple[int, ...], classes: int) -> Model:
    """A network with BatchNorm and dropout."""
    layers = nn.Linear(input_shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5)
    return Model(nn.Sequential(*layers), nn.Linear(5, classes))


def test_random_inputs_do_not_meet_dropout_or_batch_statistics() -> None:
    """What a model says of random inputs is its silo's distribution: the same model, the same row."""
    spec = job_spec("fedconcat-id", 2, model={"name": f"python:{__name__}:normalised_network", "config": {}})
    context = JobContext.of(registry.bind(spec), references(spec))
    tree = context.initial_model()

    class SameUpdates:
        silos = ("silos/s0", "silos/s1")

        def tensors(self, silo: str, kind: str) -> Tree:
            return dict(tree)

    updates: Any = SameUpdates()
    rows = inferred_distributions(context, updates, probes=150)
    np.testing.assert_array_equal(rows["silos/s0"], rows["silos/s1"])
    np.testing.assert_allclose(rows["silos/s0"].sum(), 1)


@pytest.mark.parametrize(("variant", "begins_anew"), [("paper", True), ("released", False)])
def test_fedconcat_id_begins_the_clusters_anew_or_keeps_the_first_round(
    tmp_path: Path, variant: str, begins_anew: bool
) -> None:
    classes = {"a": [0, 1], "b": [2, 3]}
    config = {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2, "variant": variant}
    spec = job_spec("fedconcat-id", list(classes), 4, method={"config": config})
    engine = open_engine(tmp_path / "aggregator", spec)
    silos = local_silos(tmp_path, runners(spec, skewed_silos(tmp_path, classes), tmp_path))
    initial = dict(engine.state.tree("initial"))
    for silo in silos:
        silo.answer(engine)
    engine.settle()
    for number in range(engine.state.values["clusters"]):
        tree = engine.state.tree(f"cluster/{number}")
        assert all(np.array_equal(tree[name], initial[name]) for name in initial) == begins_anew


@pytest.mark.parametrize("epsilon", [2.0, None])
def test_noise_on_label_distributions_alone_is_refused_with_what_covers_the_models_too(
    epsilon: float | None,
) -> None:
    with pytest.raises(ManifestFaults) as refused:
        bound_method("fedconcat", config={"clusters": 2, "epsilon": epsilon})
    (fault,) = refused.value.faults
    assert (fault.path, fault.value) == ("spec.method.config.epsilon", epsilon)
    assert "models" in fault.problem
    assert "use spec.privacy.differentialPrivacy" in fault.remedy
    assert "fedconcat-id" in fault.remedy


def test_the_number_of_random_inputs_is_the_jobs(tmp_path: Path) -> None:
    """The mean of so many answers, also where the last batch is not full."""
    spec = job_spec("fedconcat-id", 1)
    context = JobContext.of(registry.bind(spec), references(spec))
    tree = context.initial_model()
    updates: Any = answers({"silos/s0": {"model": tree}})
    (found,) = inferred_distributions(context, updates, probes=130).values()
    model = build_model(spec.model, spec.data, seed=0)
    load_tree(model, tree)
    generator = torch.Generator().manual_seed(context.seed("random inputs"))
    inputs = torch.cat([torch.rand((size, 6), generator=generator) for size in (100, 30)])
    with torch.inference_mode():
        expected = model.eval()(inputs).double().softmax(dim=1).mean(dim=0)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
    assert bound_method("fedconcat-id").config.model_dump()["probes"] == 10_000
