"""In one process a job gives the very bytes that it gives through signed updates, whatever the method and the seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.loading import JobManifest
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.learning.models import build_model, to_tree
from fedsilo.methods import registry
from fedsilo.methods.state import State
from fedsilo.silo import secret
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.simulate import simulate
from fedsilo.wire import write_tensors
from tests.federate import drive, local_silos, open_engine, runners
from tests.unit.methods.forms import COUNTING, FORMS, REDUNDANT_FORMS, ROUNDS, each_form
from tests.unit.simulation.digits import manifest_of, sharing


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What silos draw from no seed of the job, so that both ways can be compared."""
    monkeypatch.setattr(secret, "draw", lambda: bytes(secret.SECRET_BYTES))


def small_manifest(count: int, **spec: Any) -> JobManifest:
    """A job of so many silos, each with a twelfth of an even share of the digits."""
    return manifest_of(sharing(12 * count)[:count], **({"training": {"rounds": ROUNDS}} | spec))


def run_both(tmp_path: Path, count: int, **spec: Any) -> Simulation:
    """Run a job both ways and compare models, histories, and what the silos keep."""
    manifest = small_manifest(count, **spec)
    job = manifest.job.spec
    evaluation = GlobalEvaluation(job, tmp_path) if job.evaluation.test_dataset else None
    engine = open_engine(tmp_path / "signed" / "aggregator", job, evaluation=evaluation, root=tmp_path)
    silos = local_silos(tmp_path / "signed", runners(job, manifest.silos, tmp_path))
    drive(engine, silos)
    simulation = simulate(manifest, tmp_path, tmp_path / "simulated")
    assert engine.result is not None and simulation.result is not None
    assert simulation.result.sha256 == engine.result.sha256
    assert simulation.result.path.read_bytes() == engine.result.path.read_bytes()
    differing = {"updates", "bytes"}  # nothing is signed, and updates have no headers
    for one, other in zip(simulation.history(), engine.history(), strict=True):
        assert one.keys() == other.keys()
        assert {k: one[k] for k in one.keys() - differing} == {k: other[k] for k in other.keys() - differing}
        assert one["bytes"].keys() == other["bytes"].keys()
    assert {
        silo.reference: content(silo.private_state) for silo in silos if silo.private_state != State()
    } == {silo: content(private) for silo, private in simulation.private.items()}
    return simulation


def outcome(simulation: Simulation) -> tuple[Any, ...]:
    """The model, and what the silos keep, which is all that there is of some methods."""
    assert simulation.result is not None
    return simulation.result.sha256, {silo: content(kept) for silo, kept in simulation.private.items()}


def content(state: State) -> tuple[Any, Any]:
    """Every bit of a private state."""
    trees = {
        tree: {name: (array.dtype, array.shape, array.tobytes()) for name, array in state.tree(tree).items()}
        for tree in state.trees
    }
    return trees, state.values


def test_every_method_has_a_form() -> None:
    assert {method for method, _ in FORMS.values()} == set(registry.names())


@pytest.mark.parametrize("form", each_form())
def test_every_form_gives_the_bytes_of_signed_updates_and_with_another_seed_others(
    tmp_path: Path, form: str
) -> None:
    name, config = FORMS[form]
    # Without a validation set, which is drawn from the seed whatever the method draws.
    given: dict[str, Any] = {
        "method": {"name": name, "config": config},
        "data": {"validationFraction": 0},
    }
    if name == "fedrep":  # nobody but a silo can score a model with its own head
        given |= {"evaluation": {"testDataset": None}, "data": {"validationFraction": 0.2}}
    found = run_both(tmp_path, 3, **given)
    if form in REDUNDANT_FORMS:  # from seeds it draws what another does
        return
    reseeded = small_manifest(3, training={"rounds": ROUNDS, "seed": 8}, **given)
    others = simulate(reseeded, tmp_path, tmp_path / "reseeded")
    assert (outcome(found) == outcome(others)) is (form in COUNTING)


def test_so_do_samples_of_silos_that_score_the_model_themselves(tmp_path: Path) -> None:
    run_both(
        tmp_path,
        4,
        method={"name": "scaffold"},
        evaluation={"testDataset": None, "every": 2},
        participation={"fraction": 0.5},
        data={"validationFraction": 0.2},
    )


@pytest.mark.thorough
def test_so_does_what_an_optimiser_keeps(tmp_path: Path) -> None:
    run_both(
        tmp_path,
        2,
        method={"name": "map"},
        training={"rounds": 2, "optimizer": {"name": "adam", "learningRate": 0.01, "state": "keep"}},
    )


def test_parts_of_a_model_that_begins_with_a_file(tmp_path: Path) -> None:
    network = {"name": "resnet8", "config": {"width": 2}}
    spec = manifest_of(sharing(2), model=network).job.spec
    ref = write_tensors(to_tree(build_model(spec.model, spec.data, seed=5)), tmp_path / "start.safetensors")
    run_both(
        tmp_path,
        2,
        model=network
        | {
            "initialWeights": {"sha256": ref.digest, "file": "start.safetensors"},
            "parameters": {"frozen": ["encoder.0.*"], "local": ["*running_*", "*.num_batches_tracked"]},
        },
        evaluation={"testDataset": None, "every": 2},
        data={"validationFraction": 0.2},
    )


def test_so_does_what_is_done_with_raw_values(tmp_path: Path) -> None:
    run_both(
        tmp_path,
        3,
        method={"name": "fedphp"},
        data={"preprocessing": {"standardise": True}},
        participation={"fraction": 0.5},
    )


@pytest.mark.parametrize(
    ("method", "communication"),
    [
        ("scaffold", {"upload": {"encoding": "topk", "fraction": 0.05}, "download": {"encoding": "float16"}}),
        ("fedconcat", {"upload": {"encoding": "int8", "block": 64}, "download": {"encoding": "int8"}}),
    ],
    ids=str,
)
def test_what_is_sent_in_fewer_bytes(tmp_path: Path, method: str, communication: dict[str, Any]) -> None:
    config = next(config for name, config in FORMS.values() if name == method)
    run_both(tmp_path, 3, method={"name": method, "config": config}, communication=communication)


@pytest.mark.thorough
def test_fewer_bytes_of_parts_of_a_network_with_batch_norm(tmp_path: Path) -> None:
    run_both(
        tmp_path,
        4,
        model={
            "name": "resnet8",
            "config": {"width": 2},
            "parameters": {"frozen": ["encoder.0.*"], "local": ["classifier.*"]},
        },
        training={"rounds": 3, "optimizer": {"name": "adam", "state": "keep"}},
        evaluation={"testDataset": None},
        data={"validationFraction": 0.2},
        participation={"fraction": 0.5},
        communication={"upload": {"encoding": "int8"}, "download": {"encoding": "bfloat16"}},
    )


def test_a_network_with_batch_norm(tmp_path: Path) -> None:
    run_both(tmp_path, 2, model={"name": "resnet8", "config": {"width": 2}})


RULES: tuple[dict[str, Any], ...] = (
    {"name": "norm-clipping", "norm": 0.1},
    {"name": "median"},
    {"name": "trimmed-mean", "byzantine": 1},
    {"name": "krum", "byzantine": 1},
    {"name": "geometric-median"},
)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=rule["name"], marks=[] if rule["name"] == "krum" else [pytest.mark.thorough])
        for rule in RULES
    ],
)
def test_rules_in_place_of_the_mean_and_what_they_keep(tmp_path: Path, rule: dict[str, Any]) -> None:
    found = run_both(
        tmp_path,
        5,
        aggregation={"rule": rule, "weights": "uniform"},
        communication={"upload": {"encoding": "bfloat16"}},
    )
    last = found.history()[-1]["kept"]
    assert last.keys() == found.history()[-1]["samples"].keys()
    assert all(0 <= part <= 1 for part in last.values())


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("fedavg", {}),
        pytest.param("ccvr", {}, marks=pytest.mark.thorough),
        pytest.param(
            "fedconcat",
            {"clusters": 2, "encoderRounds": 1, "classifierRounds": 1},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_noise_that_hides_single_examples(tmp_path: Path, method: str, config: dict[str, Any]) -> None:
    private = {"unit": "example", "noiseMultiplier": 1.0, "delta": 1e-3}
    run_both(
        tmp_path,
        3,
        method={"name": method, "config": config},
        training={"rounds": 2, "batchSize": 20},
        privacy={"differentialPrivacy": private},
    )


@pytest.mark.parametrize("method", ["fedavg", pytest.param("moon", marks=pytest.mark.thorough)])
def test_noise_that_hides_a_silo(tmp_path: Path, method: str) -> None:
    private = {"unit": "silo", "noiseMultiplier": 1.0, "delta": 1e-3, "maxUpdateNorm": 0.5}
    found = run_both(
        tmp_path,
        4,
        method={"name": method},
        aggregation={"weights": "uniform"},
        participation={"fraction": 0.75},
        privacy={"differentialPrivacy": private},
    )
    for line in found.history():
        assert line["training"] == {}
        assert set(line["samples"].values()) == {0}
