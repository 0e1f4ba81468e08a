"""The method that fedsilo/methods/README.md shows is a real one: it runs, and computes what its paper says."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.cli.main import main
from fedsilo.engine.context import JobContext
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange, Phase, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import federate, job_spec, model_of
from tests.paths import ROOT
from tests.unit.engine.synthetic import synthetic_runners

PAGE = ROOT / "fedsilo" / "methods" / "README.md"
EXCHANGE = Exchange(Phase("train", 3, "train"), 1, 1, 3)


@pytest.fixture(scope="module")
def method(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Method]]:
    """The page's code block, installed under the entry point that the page names."""
    folder = tmp_path_factory.mktemp("your_package")
    (folder / "fedavgm.py").write_text(PAGE.read_text().split("```python\n")[1].split("```")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        point = EntryPoint("fedavgm", "fedavgm:FedAvgM", registry.GROUP)
        known = registry._entry_points() | {"fedavgm": point}
        patch.setattr(registry, "_entry_points", lambda: known)
        yield registry.get("fedavgm")
    del sys.modules["fedavgm"]


class Recorded:
    """Updates of two silos, 1 and 3 samples, as recorded."""

    silos = ("silos/s0", "silos/s1")

    def __init__(self, *models: Tree) -> None:
        self.models = dict(zip(self.silos, models, strict=True))

    def samples(self, silo: str) -> int:
        return {"silos/s0": 1, "silos/s1": 3}[silo]

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        assert kind == "model"
        one, other = (self.models[silo] for silo in self.silos)
        a, b = (weights[silo] for silo in self.silos)
        return {name: a * one[name] + b * other[name] for name in one}


def test_three_rounds_give_the_recorded_numbers(method: type[Method]) -> None:
    npz = reference_numbers.load("server_optimizers")
    spec = job_spec("fedavgm", 2, method={"config": {"momentum": float(npz["server_momentum"])}})
    job = JobContext(spec, ModelSignature((), 4, 5), Recorded.silos, "samples")
    half, state = registry.bind(spec).server(), State({"model": {"w": npz["w0"]}})
    for round in (1, 2, 3):
        updates: Any = Recorded({"w": npz[f"client/{round}/0"]}, {"w": npz[f"client/{round}/1"]})
        state = half.aggregate(job, state, EXCHANGE, updates)
        np.testing.assert_allclose(state.tree("model")["w"], npz[f"fedavgm_paper/round{round}"], rtol=1e-5)


def test_a_whole_job_is_the_formula_by_hand(tmp_path: Path, method: type[Method]) -> None:
    beta, rounds = 0.5, 3
    specs = [job_spec("fedavgm", 2, n, method={"config": {"momentum": beta}}) for n in range(1, rounds + 1)]
    models = [
        model_of(federate(tmp_path / str(n), spec, synthetic_runners(spec))) for n, spec in enumerate(specs)
    ]
    # What an inventor adds to the model that it was given depends on silo and round alone, so delta is known.
    deltas = [-mean_addition(models[0], specs[0], round) for round in range(1, rounds + 1)]
    w = flat(models[0]) + deltas[0]
    velocity = np.zeros_like(w)
    for found, delta in zip(models, deltas, strict=True):
        velocity = beta * velocity + delta
        w = w - velocity
        np.testing.assert_allclose(flat(found), w, rtol=1e-4, atol=1e-5)


def flat(tree: Tree) -> np.ndarray:
    return np.concatenate([array.ravel() for array in tree.values()])


def mean_addition(like: Tree, spec: FederatedJobSpec, round: int) -> np.ndarray:
    """What the two silos, of 1 and 2 samples, add on average."""
    zeros = {name: np.zeros_like(array) for name, array in like.items()}
    task = SiloTask("train", "train", round, round, round, {"model": zeros}, {})
    one, other = (
        flat(dict(runner.run(task, State()).tensors)) for runner in synthetic_runners(spec).values()
    )
    return np.asarray((one + 2 * other) / 3)


def test_velocity_of_batchnorm_statistics_is_not_kept(method: type[Method]) -> None:
    spec = job_spec("fedavgm", 2)
    job = JobContext(spec, ModelSignature((), 4, 5), Recorded.silos, "samples")
    state = State({"model": {"w": np.ones(1), "bn.running_var": np.ones(1)}})
    updates: Any = Recorded(*[{"w": np.zeros(1), "bn.running_var": np.full(1, 0.1)}] * 2)
    half = registry.bind(spec).server()
    for _ in range(2):
        state = half.aggregate(job, state, EXCHANGE, updates)
    np.testing.assert_allclose(state.tree("model")["bn.running_var"], 0.1)
    assert set(state.tree("velocity")) == {"w"}


def test_the_command_line_describes_it(method: type[Method], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", method.name]) == 0
    assert "momentum: number at least 0 below 1; default 0.9" in capsys.readouterr().out
