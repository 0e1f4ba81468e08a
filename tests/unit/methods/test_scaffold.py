"""SCAFFOLD against the released codes: their rounds and algebra, and what control variates are for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.amp.grad_scaler import GradScaler

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.learning.models import build_model, to_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.components.control_variates import ControlVariateRule, control
from fedsilo.methods.components.controlled_averaging import ControlledServer
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import drive, job_spec, local_silos, model_of, open_engine, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    ROUND,
    answers,
    as_recorded,
    assert_close,
    server_context,
)


def aggregated_state(
    start: State, models: Mapping[str, Tree], n: int, steps: float, rate: float, server_rate: float
) -> State:
    optimizer = {"learningRate": rate, "momentum": 0}
    spec = job_spec("scaffold", n, training={"rounds": 1, "optimizer": optimizer})
    job = server_context(spec, ModelSignature((), 4, 5))
    half = ControlledServer(ControlVariateRule(), server_rate)
    sent = {silo: {"model": model} for silo, model in models.items()}
    return half.aggregate(job, start, ROUND, answers(sent, steps=steps))


def test_the_algebra_is_that_of_the_released_code() -> None:
    npz = reference_numbers.load("scaffold_algebra")
    w, c = fixture_tree(npz, "x/"), fixture_tree(npz, "c/")
    steps, rate, n = float(npz["K"]), float(npz["lr"]), int(npz["n_total"])
    uploaded = npz["uploaded"].tolist()
    ys = {f"silos/s{k}": fixture_tree(npz, f"y/{k}/") for k in uploaded}
    for k in range(n):
        own = control(w, fixture_tree(npz, f"y/{k}/"), c, fixture_tree(npz, f"ci0/{k}/"), steps * rate)
        assert_close(own, fixture_tree(npz, f"ci1/{k}/"))
    state = aggregated_state(State({"model": w, "control": c}), ys, n, steps, rate, float(npz["server_lr"]))
    assert_close(state.tree("model"), fixture_tree(npz, "x1/"))
    assert_close(state.tree("control"), fixture_tree(npz, "c1/"))


RECORDED_RUNS: list[tuple[str, dict[str, Any], str]] = [
    ("niid_scaffold", {"variant": "niid-bench"}, "round{}/"),
    ("map_scaffold", {"variant": "released", "serverLearningRate": 0.75}, "round{}/g/"),
    ("feddynrepo_scaffold_partial", {"variant": "feddyn"}, "round{}/sel/"),
]


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("fixture", "config", "prefix"), RECORDED_RUNS)
def test_every_round_is_that_of_the_released_codes(
    tmp_path: Path, fixture: str, config: dict[str, Any], prefix: str, rounds: int
) -> None:
    """Means are by the variant's own rule."""
    npz = reference_numbers.load(fixture)
    engine = as_recorded(tmp_path, "scaffold", fixture, rounds, config, aggregation={})
    assert_close(model_of(engine), fixture_tree(npz, prefix.format(rounds)))
    if fixture_tree(npz, f"round{rounds}/c/"):
        assert_close(engine.state.tree("control"), fixture_tree(npz, f"round{rounds}/c/"))
    elif "round1/state_param_list" in npz:
        found = np.concatenate([array.ravel() for array in engine.state.tree("control").values()])
        np.testing.assert_allclose(found, npz[f"round{rounds}/state_param_list"][-1], rtol=1e-4, atol=2e-5)


def job(
    tmp_path: Path,
    rounds: int,
    fraction: float = 1.0,
    training: Mapping[str, Any] | None = None,
    **config: Any,
) -> tuple[RoundEngine, list[Tree]]:
    """A finished job, and the silos' variates."""
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3], "c": [1, 2]})
    plan = {"rounds": rounds, "device": "cpu", "minSteps": 4, "optimizer": {"learningRate": 0.1}}
    spec = job_spec(
        "scaffold",
        ["a", "b", "c"],
        rounds,
        method={"config": config},
        training={**plan, **(training or {})},
        participation={"fraction": fraction},
    )
    engine = open_engine(tmp_path / "aggregator", spec)
    answering = local_silos(tmp_path, runners(spec, silos, tmp_path))
    drive(engine, answering)
    assert engine.failure is None
    kept = [silo.private_state for silo in answering]
    return engine, [state.tree("control") for state in kept if "control" in state.trees]


@pytest.mark.parametrize("variant", ["paper", "niid-bench"])
def test_c_is_the_mean_of_the_silos_variates_whoever_took_part(tmp_path: Path, variant: str) -> None:
    engine, own = job(tmp_path, 4, fraction=0.6, variant=variant)
    for name, c in engine.state.tree("control").items():
        wanted = np.sum([variates[name] for variates in own], axis=0) / 3
        np.testing.assert_allclose(c, wanted, rtol=1e-3, atol=1e-5)


def test_without_momentum_a_variate_is_the_mean_gradient_of_its_silo(tmp_path: Path) -> None:
    engine, own = job(tmp_path, 1)
    spec = job_spec("scaffold", 3)
    start = to_tree(build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")))
    mean = engine.state.tree("model")
    for name in own[0]:
        # c_k = 0 at first, so y_k = w - 4 * 0.1 * c_k+, and the model is the mean of the y_k.
        moved = -0.4 * np.mean([variates[name] for variates in own], axis=0)
        np.testing.assert_allclose(mean[name] - start[name], moved, rtol=1e-3, atol=1e-6)


def test_steps_that_float16_skips_count_in_no_variate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients overflow under so large a scale of the loss, until it has been halved a few times."""
    monkeypatch.setattr("fedsilo.learning.gradients.GradScaler", partial(GradScaler, init_scale=2.0**24))
    training = {"precision": "float16", "minSteps": 20, "optimizer": {"learningRate": 0.1, "momentum": 0}}
    engine, own = job(tmp_path, 1, training=training)
    spec = job_spec("scaffold", 3)
    start = to_tree(build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")))
    (line,) = (tmp_path / "aggregator" / "history.jsonl").read_text().splitlines()
    steps = [figures["steps"] for figures in json.loads(line)["silos"].values()]
    assert len(steps) == 3 and all(1 <= taken < 20 for taken in steps)
    for name, mean in engine.state.tree("model").items():
        moved = np.mean(
            [-0.1 * taken * variates[name] for taken, variates in zip(steps, own, strict=True)], axis=0
        )
        np.testing.assert_allclose(mean - start[name], moved, rtol=1e-3, atol=1e-6)


def test_statistics_of_batchnorm_are_averaged_and_have_no_variate() -> None:
    model = {"w": np.ones(2, np.float32), "bn.running_var": np.ones(2, np.float32)}
    ys = {f"silos/s{k}": {name: np.full_like(array, 0.1) for name, array in model.items()} for k in range(2)}
    start = State({"model": model, "control": {"w": np.zeros(2, np.float32)}})
    state = aggregated_state(start, ys, 2, 1, 0.1, server_rate=2)
    np.testing.assert_allclose(state.tree("model")["bn.running_var"], 0.1, rtol=1e-6)
    np.testing.assert_allclose(state.tree("model")["w"], -0.8, rtol=1e-6)
    assert set(state.tree("control")) == {"w"}


@pytest.mark.parametrize("method", ["scaffold", "scamap"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_maps_code_clips_the_gradient_before_it_is_corrected(
    tmp_path: Path, method: str, variant: str
) -> None:
    """One step from w is y = w - eta (clip(g) + c - c_k) in MAP's code, and otherwise w - eta clip(g + c - c_k)."""
    optimizer = {"learningRate": 0.1, "momentum": 0}
    config = {"alpha": 1} if method == "scamap" else {}
    silos = skewed_silos(tmp_path, {"a": [0, 1]})

    def sent_gradient(c: Tree | None, name: str, **training: Any) -> Tree:
        plan = {"rounds": 1, "device": "cpu", "batchSize": 24, "optimizer": optimizer} | training
        spec = job_spec(method, ["a"], method={"config": config | {"variant": name}}, training=plan)
        (runner,) = runners(spec, silos, tmp_path).values()
        w = runner.context.initial_model()
        zero = {key: np.zeros_like(array) for key, array in w.items()}
        task = SiloTask("train", "train", 1, 1, 1, {"model": w, "control": c or zero}, {"drawn": 1.0})
        moved = runner.run(task, State()).tensors
        return {key: (array - moved[key]) / 0.1 for key, array in w.items()}

    rng = np.random.default_rng(0)
    g = sent_gradient(None, variant)
    c = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in g.items()}
    limit = 0.1

    def clipped_tree(tree: Tree) -> Tree:
        norm = np.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in tree.values()))
        assert norm > 2 * limit  # long enough that the order matters
        return {name: array * (limit / norm) for name, array in tree.items()}

    short = clipped_tree(g)
    wanted = {name: array + c[name] for name, array in short.items()}
    if variant == "paper":
        wanted = clipped_tree({name: array + c[name] for name, array in g.items()})
    found = sent_gradient(c, variant, gradientClip=limit)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=2e-5)
