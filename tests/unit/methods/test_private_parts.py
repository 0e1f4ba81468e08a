"""Methods whose silos keep a part of the model, or a model of their own, against the released codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.api.common import Metadata
from fedsilo.api.faults import ManifestFaults
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.learning import training
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_model, initial_model, load_tree
from fedsilo.learning.saved import load_model
from fedsilo.methods import registry
from fedsilo.methods.checks import check_training
from fedsilo.methods.interface import LOCAL, PERSONAL_TREE, Reply, SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.silo.context import LocalContext
from fedsilo.silo.personal import PersonalModel
from fedsilo.transforms.conflicts import conflicts_of
from fedsilo.validation import registry_faults
from tests import reference_numbers
from tests.federate import (
    LocalSilo,
    Runner,
    bound_method,
    drive,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    silo_holding,
    skewed_silos,
)
from tests.reference_numbers import Numbers
from tests.reference_numbers.networks import fixture_tree, network_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    assert_close,
    fixture_runners,
    fixture_spec,
    map_repository,
    run_recorded_job,
)

PRIVATE_KINDS = {"fedrep": "private_models", "fedrod": "private_classifiers", "flda": "private_models"}
"""What MAP's code calls that which each client keeps."""


def private_part(method: str, silo: LocalSilo) -> Tree:
    """That part of the silo's private state, with the names of the fixture."""
    if method == "fedrod":
        return silo.private_state.tree("head")
    name, beginning = (LOCAL, "classifier.") if method == "fedrep" else (PERSONAL_TREE, "private.")
    tree = silo.private_state.tree(name)
    return {key.removeprefix(beginning): array for key, array in tree.items() if key.startswith(beginning)}


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("method", "fixture"), [("fedrep", "map_fedrep"), ("fedrod", "map_fedrod")])
def test_maps_forms_are_those_of_its_code(tmp_path: Path, method: str, fixture: str, rounds: int) -> None:
    npz = reference_numbers.load(fixture)
    config = {"variant": "map"} | ({"gamma": float(npz["arg/bal_gamma"])} if method == "fedrod" else {})
    engine, silos = run_recorded_job(tmp_path, method, fixture, 3, config, stop=rounds)
    found = engine.state.tree("model")
    expected = network_tree(npz, f"round{rounds}/g/")
    assert_close(found, {name: expected[name] for name in found})
    assert ("classifier.weight" in found) == (method != "fedrep")
    for k, silo in enumerate(silos):
        assert_close(
            private_part(method, silo), fixture_tree(npz, f"round{rounds}/{PRIVATE_KINDS[method]}/{k}/")
        )


class Beginning:
    """A silo that begins with a recorded private state, where the released code draws one."""

    def __init__(self, runner: Runner, private: State) -> None:
        self.runner, self.private = runner, private

    def run(self, task: SiloTask, private: State) -> Reply:
        return self.runner.run(task, private if private.trees else self.private)


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_maps_flda_is_that_of_its_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_flda")
    spec = fixture_spec("flda", "map_flda", 3, method={"config": {"variant": "map"}}, **map_repository(npz))
    gate = fixture_tree(npz, "init/")
    own = {f"private.{name}": array for name, array in network_tree(npz, "init/").items()}
    own |= {f"gate.{name}": gate[f"private_weight_layer.{name}"] for name in ("weight", "bias")}
    answering = fixture_runners(spec, "map_flda").items()
    silos = local_silos(
        tmp_path, {silo: Beginning(runner, State({PERSONAL_TREE: own})) for silo, runner in answering}
    )
    engine = open_engine(tmp_path / "aggregator", spec)
    while len(engine.history()) < rounds:
        assert [silo for silo in silos if silo.answer(engine)] or engine.settle()
        engine.settle()
    assert_close(engine.state.tree("model"), network_tree(npz, f"round{rounds}/g/"))
    for k, silo in enumerate(silos):
        assert_close(private_part("flda", silo), fixture_tree(npz, f"round{rounds}/private_models/{k}/"))
    accuracy = npz["log/LOCAL_TACCS"][2 * rounds - 1]
    assert personal_accuracy(spec, "map_flda", silos) == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("method", "fixture"), [("pfedme", "map_pfedme"), ("per-fedavg", "map_perfedavg")])
def test_maps_personal_steps_are_those_of_its_code(
    tmp_path: Path, method: str, fixture: str, rounds: int
) -> None:
    npz = reference_numbers.load(fixture)
    config: dict[str, Any] = {"variant": "map"}
    if method == "pfedme":
        config |= {"proximalWeight": float(npz["arg/reg_lamb"]), "personalSteps": int(npz["arg/k_step"])}
        config |= {"alpha": float(npz["arg/alpha"]), "beta": float(npz["arg/beta"])}
    else:
        config |= {"metaRate": float(npz["arg/meta_lr"])}
    engine, _ = run_recorded_job(tmp_path, method, fixture, 3, config, stop=rounds)
    assert_close(engine.state.tree("model"), fixture_tree(npz, f"round{rounds}/g/"))


def client(
    directory: Path, method: str, fixture: str, parts: tuple[int | str, ...], /, **sections: Any
) -> tuple[LocalContext, SiloTask]:
    """The only silo of a job with a fixture's network and data, and its task, in the order that was recorded.

    :param parts: of its data `x` and `y`, put together.
    """
    npz = reference_numbers.load(fixture)
    spec = fixture_spec(method, fixture, 1, **sections)
    x, y = (np.concatenate([npz[f"{name}{part}"] for part in parts]) for name in "xy")
    (runner,) = runners(spec, [silo_holding(directory, "c0", x, y)], directory).values()
    task = SiloTask("train", "train", 1, 1, 1, {"model": network_tree(npz, "init/")}, {})
    return replace(runner.context, shuffle=False), task


def training_section(npz: Numbers, lr: str, batch: int, **more: Any) -> dict[str, Any]:
    optimizer = {"learningRate": float(npz[lr]), "momentum": 0.0} | more.pop("optimizer", {})
    return {"rounds": 1, "device": "cpu", "batchSize": batch, "optimizer": optimizer, **more}


def silo_reply(context: LocalContext, task: SiloTask) -> Reply:
    return registry.bind(context.spec).silo()[task.step](context, task, State())


def test_fedrep_trains_the_head_and_then_the_encoder_as_its_code_does(tmp_path: Path) -> None:
    npz = reference_numbers.load("fedrep_client")
    optimizer = {"momentum": float(npz["momentum"]), "weightDecay": float(npz["wd_weights"])}
    epochs = int(npz["local_ep"])
    settings = training_section(npz, "lr", int(npz["batch"]), localEpochs=epochs, optimizer=optimizer)
    method = {"config": {"variant": "released"}}
    silo, task = client(tmp_path, "fedrep", "fedrep_client", ("",), training=settings, method=method)
    whole = task.trees["model"]
    task = replace(task, trees={"model": {n: a for n, a in whole.items() if not n.startswith("classifier")}})
    found = silo_reply(replace(silo, initial=whole), task).tensors
    assert_close(found, fixture_tree(npz, "after/"))


def test_fedrod_trains_both_heads_as_pfllib_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded counts are one more than those of the data, so that no logarithm is infinite."""
    npz = reference_numbers.load("fedrod_client")
    monkeypatch.setattr("fedsilo.methods.fedrod.class_counts", lambda _: npz["counts"])
    settings = training_section(npz, "lr", int(npz["batch"]), localEpochs=int(npz["epochs"]))
    silo, task = client(tmp_path, "fedrod", "fedrod_client", ("",), training=settings)
    reply = silo_reply(silo, task)
    assert_close(reply.tensors, network_tree(npz, "after/"))
    assert reply.private is not None
    head = reply.private.tree("head")
    assert_close(head, fixture_tree(npz, "phead/"))
    for name, array in head.items():
        own = reply.private.tree(PERSONAL_TREE)[f"classifier.{name}"]
        np.testing.assert_allclose(own, reply.tensors[f"classifier.{name}"] + array)


def test_pfedme_finds_theta_and_follows_it_as_its_code_does(tmp_path: Path) -> None:
    npz = reference_numbers.load("pfedme_client")
    settings = training_section(
        npz,
        "lr_local",
        12,
        localEpochs=int(npz["R"]),
        optimizer={"weightDecay": float(npz["mu_in_optimizer"])},
    )
    config = {"proximalWeight": float(npz["lamda"]), "personalSteps": int(npz["K"])}
    config |= {"personalRate": float(npz["lr_personal"])}
    silo, task = client(
        tmp_path, "pfedme", "pfedme_client", ("",), training=settings, method={"config": config}
    )
    reply = silo_reply(silo, task)
    names = list(reply.tensors)
    assert_close(reply.tensors, {name: npz[f"w/{place}"] for place, name in enumerate(names)})
    assert reply.private is not None
    own = reply.private.tree(PERSONAL_TREE)
    assert_close(own, {name: npz[f"theta/{place}"] for place, name in enumerate(names)})


def test_per_fedavg_takes_its_pairs_of_steps_as_its_code_does(tmp_path: Path) -> None:
    npz = reference_numbers.load("perfedavg_client")
    tree = network_tree(npz, "init/")
    for first, second in npz["order"].reshape(2, 2).tolist():
        batch = len(npz[f"y{first}"])
        settings = training_section(npz, "beta", batch)
        config = {"innerRate": float(npz["alpha_inner"])}
        (tmp_path / str(first)).mkdir()
        silo, task = client(
            tmp_path / str(first),
            "per-fedavg",
            "perfedavg_client",
            (first, second),
            training=settings,
            method={"config": config},
        )
        tree = silo_reply(silo, replace(task, trees={"model": tree})).tensors
    assert_close(tree, network_tree(npz, "after/"))


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize("method", ["fedrod", "pfedme"])
def test_the_silos_own_models_score_as_maps_code_logged(tmp_path: Path, method: str, rounds: int) -> None:
    fixture = f"map_{method}"
    npz = reference_numbers.load(fixture)
    config: dict[str, Any] = {"variant": "map"}
    if method == "pfedme":
        config |= {"proximalWeight": float(npz["arg/reg_lamb"]), "personalSteps": int(npz["arg/k_step"])}
    _, silos = run_recorded_job(tmp_path, method, fixture, 3, config, stop=rounds)
    spec = fixture_spec(method, fixture, 1, method={"config": config})
    assert personal_accuracy(spec, fixture, silos) == pytest.approx(
        npz["log/LOCAL_TACCS"][2 * rounds - 1], abs=1e-6
    )


def personal_accuracy(spec: FederatedJobSpec, fixture: str, silos: list[LocalSilo]) -> float:
    """Mean over the clients' own test data, after their training."""
    npz, architecture = (
        reference_numbers.load(fixture),
        registry.bind(spec).models.own_architecture(spec),
    )
    scores = []
    for k, (silo, runner) in enumerate(zip(silos, fixture_runners(spec, fixture).values(), strict=True)):
        own = runner.context.module(silo.private_state.tree(PERSONAL_TREE), architecture)
        test = Examples.from_arrays(npz[f"tx{k}"], npz[f"ty{k}"], "cpu")
        scores.append(evaluate(own, test).accuracy)
    return float(np.mean(scores))


TEST_SET = {"name": "test", "loader": "npz", "config": {"path": "test.npz"}}

CLASSES_OF = {"a": [0, 1], "b": [2], "c": [1, 2, 3]}


def train_job(
    directory: Path, method: str, config: dict[str, Any] | None = None, /, rounds: int = 2, **sections: Any
) -> tuple[RoundEngine, list[LocalSilo]]:
    """A job over silos that lack classes, at its end."""
    spec = job_spec(method, list(CLASSES_OF), rounds, method={"config": config or {}}, **sections)
    silos = local_silos(directory, runners(spec, skewed_silos(directory, CLASSES_OF), directory))
    engine = open_engine(directory / "aggregator", spec)
    drive(engine, silos)
    if engine.failure is not None:
        raise engine.failure
    return engine, silos


@pytest.mark.parametrize("method", ["fedrep", "fedrod", "flda", "pfedme", "per-fedavg"])
def test_an_institution_opens_its_own_model(tmp_path: Path, method: str) -> None:
    spec = job_spec(method, list(CLASSES_OF), 2)
    _, silos = train_job(tmp_path, method)
    for silo in silos:
        PersonalModel(tmp_path / silo.reference, registry.bind(spec), silo.reference).publish(
            silo.private_state
        )
        own = load_model(tmp_path / silo.reference / "personal.safetensors")
        found = own(torch.eye(6)).detach().numpy()
        assert np.isfinite(found).all()
        if method == "flda":
            tree = {
                name: torch.tensor(array) for name, array in silo.private_state.tree(PERSONAL_TREE).items()
            }
            np.testing.assert_allclose(softmax(found), mixture(tree, torch.eye(6)), rtol=1e-5)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def mixture(tree: dict[str, torch.Tensor], x: torch.Tensor) -> np.ndarray:
    """a p + (1 - a) p' of the two-layer network, written out."""
    probabilities, features = [], []
    for part in ("shared", "private"):
        layers = [name for name in tree if name.startswith(f"{part}.encoder") and name.endswith("weight")]
        weight = layers[0]
        phi = (x @ tree[weight].T + tree[weight.replace("weight", "bias")]).clamp(min=0)
        logits = phi @ tree[f"{part}.classifier.weight"].T + tree[f"{part}.classifier.bias"]
        features.append(phi)
        probabilities.append(logits.softmax(dim=1))
    a = (features[0] @ tree["gate.weight"].T + tree["gate.bias"]).sigmoid()
    return (a * probabilities[0] + (1 - a) * probabilities[1]).numpy()


def test_fedreps_classifiers_never_leave_and_a_test_set_is_refused(tmp_path: Path) -> None:
    engine, silos = train_job(tmp_path, "fedrep")
    assert all(name.startswith("encoder.") for name in engine.state.tree("model"))
    heads = [silo.private_state.tree(LOCAL)["classifier.weight"] for silo in silos]
    assert not np.array_equal(heads[0], heads[1])
    spec = job_spec("fedrep", 1, evaluation={"testDataset": "test"}, aggregator={"datasets": [TEST_SET]})
    job = FederatedJob(metadata=Metadata(name="job", namespace="jobs"), spec=spec)
    faults = registry_faults(JobManifest("job.yaml", job, ()))
    assert [fault.path for fault in faults] == ["spec.evaluation.testDataset"]


def test_fedrep_keeps_what_a_job_says_of_its_model_if_the_classifier_is_local() -> None:
    model = {"parameters": {"frozen": ["encoder.0.*"], "local": ["classifier.*"]}}
    assert list(conflicts_of(bound_method("fedrep", model=model))) == []
    (fault,) = conflicts_of(bound_method("fedrep", model={"parameters": {"frozen": ["encoder.*"]}}))
    assert fault[0] == "spec.model.parameters.local"


def test_nothing_is_calibrated_after_a_method_without_a_common_classifier() -> None:
    with pytest.raises(ManifestFaults, match=r'after\.name: "fedrep": does not yield one model; '):
        bound_method("ccvr", config={"after": {"name": "fedrep"}})


@pytest.mark.parametrize(("epochs", "batch", "head", "encoder"), [(1, 12, 1, 1), (1, 6, 2, 2), (3, 6, 8, 4)])
def test_fedreps_encoder_has_the_last_epoch_and_at_most_half_of_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, batch: int, head: int, encoder: int
) -> None:
    taken: list[int] = []

    def noting(*args: Any, **kwargs: Any) -> training.TrainingReport:
        taken.append(args[2].max_steps)
        return real(*args, **kwargs)

    real = training.fit
    monkeypatch.setattr(training, "fit", noting)
    train_job(tmp_path, "fedrep", rounds=1, training={"rounds": 1, "localEpochs": epochs, "batchSize": batch})
    assert taken[0:2] == [head, encoder]


def test_pfedmes_beta_mixes_the_mean_with_the_last_model(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "half").mkdir()
    whole, _ = train_job(tmp_path / "one", "pfedme", rounds=1)
    half, _ = train_job(tmp_path / "half", "pfedme", {"beta": 0.25}, rounds=1)
    start = initial_model(job_spec("pfedme", 1))
    for name, mean in model_of(whole).items():
        np.testing.assert_allclose(model_of(half)[name], 0.75 * start[name] + 0.25 * mean, atol=1e-6)


def test_after_per_fedavg_every_silo_is_one_step_from_the_common_model(tmp_path: Path) -> None:
    """Also one that took no part in training."""
    sections = {
        "participation": {"fraction": 0.3},
        "training": {"rounds": 1, "device": "cpu", "batchSize": 100},
    }
    engine, silos = train_job(tmp_path, "per-fedavg", {"innerRate": 0.5}, rounds=1, **sections)
    assert [line["round"] for line in engine.history()] == [1, 2]
    common = model_of(engine)
    spec = job_spec("per-fedavg", list(CLASSES_OF))
    for silo, runner in zip(
        silos, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path).values(), strict=True
    ):
        model = build_model(spec.model, spec.data, seed=0)
        load_tree(model, common)
        x, y = runner.context.train.batch(torch.arange(len(runner.context.train)))
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(x), y))
        own = silo.private_state.tree(PERSONAL_TREE)
        for name, w in model.named_parameters():
            assert w.grad is not None
            np.testing.assert_allclose(own[name], (w - 0.5 * w.grad).detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        ("fedrod", "gamma", -1),
        ("pfedme", "proximalWeight", 0),
        ("pfedme", "personalSteps", 0),
        ("pfedme", "beta", float("nan")),
        ("per-fedavg", "innerRate", 0),
        ("flda", "variant", "released"),
    ],
)
def test_a_setting_out_of_range_is_refused(method: str, field: str, value: object) -> None:
    with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}"):
        bound_method(method, config={field: value})


@pytest.mark.parametrize("section", [{"gradientAccumulation": 2}, {"precision": "float16"}])
def test_pfedme_takes_its_steps_on_whole_batches_in_full_range(section: dict[str, Any]) -> None:
    method = bound_method("pfedme", training={"rounds": 1, **section})
    (fault,) = [*check_training(method), *method.check()]
    assert fault[0] == f"spec.training.{next(iter(section))}"
