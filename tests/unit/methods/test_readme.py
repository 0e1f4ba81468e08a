"""The method that fedsilo/methods/README.md shows is a real one: it runs, and computes what its paper says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from fedsilo.cli.main import main
from fedsilo.engine.context import JobContext
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange, Phase
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import drive, federate, job_spec, local_silos, model_of, open_engine
from tests.paths import ROOT
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.methods.harness import answers

PAGE = ROOT / "fedsilo" / "methods" / "README.md"
SILOS = ("silos/s0", "silos/s1")
SAMPLES = {"silos/s0": 1, "silos/s1": 3}


@pytest.fixture(scope="module")
def method(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Method]]:
    """The page's code block, installed under the entry point that the page names."""
    folder = tmp_path_factory.mktemp("your_package")
    (folder / "swa.py").write_text(PAGE.read_text().split("```python\n")[1].split("```")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        point = EntryPoint("swa", "swa:SWA", registry.GROUP)
        known = registry._entry_points() | {"swa": point}
        patch.setattr(registry, "_entry_points", lambda: known)
        yield registry.get("swa")
    del sys.modules["swa"]


def aggregated_rounds(
    start: State, rounds: list[dict[str, Tree]], part: float
) -> Iterator[tuple[State, Tree]]:
    """State and model after each round, of which this part does not count."""
    spec = job_spec("swa", 2, len(rounds), method={"config": {"start": part}})
    job = JobContext(spec, ModelSignature((), 4, 5), SILOS)
    half, phase = registry.bind(spec).server(), Phase("train", len(rounds), "train")
    state = start
    for number, models in enumerate(rounds, start=1):
        updates = answers({silo: {"model": tree} for silo, tree in models.items()}, SAMPLES)
        state = half.aggregate(job, state, Exchange(phase, number, number, len(rounds)), updates)
        yield state, half.model(job, state).tree


def test_rounds_that_count_are_averaged_and_the_others_are_not(method: type[Method]) -> None:
    npz = reference_numbers.load("server_optimizers")
    rounds = [
        {silo: {"w": npz[f"client/{number}/{k}"]} for k, silo in enumerate(SILOS)} for number in (1, 2, 3)
    ]
    w1, w2, w3 = ((npz[f"client/{number}/0"] + 3 * npz[f"client/{number}/1"]) / 4 for number in (1, 2, 3))
    start = State({"model": {"w": npz["w0"]}})
    for part, expected in (
        (0.0, [w1, (w1 + w2) / 2, (w1 + w2 + w3) / 3]),
        (0.5, [w1, w2, (w2 + w3) / 2]),
        (0.9, [w1, w2, w3]),
    ):
        for (state, model), w, mean in zip(
            aggregated_rounds(start, rounds, part), (w1, w2, w3), expected, strict=True
        ):
            np.testing.assert_allclose(model["w"], mean, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(state.tree("model")["w"], w, rtol=1e-5, atol=1e-7)


def test_a_whole_job_is_the_mean_of_federated_averages(tmp_path: Path, method: type[Method]) -> None:
    """The mean is that of the last two of four rounds, each by a job of its own; also where the aggregator dies between
    the two."""
    means = []
    for rounds in (3, 4):
        spec = job_spec("fedavg", 2, rounds)
        engine = federate(tmp_path / str(rounds), spec, synthetic_runners(spec))
        means.append(model_of(engine))
    spec = job_spec("swa", 2, 4, method={"config": {"start": 0.5}})
    directory = tmp_path / "swa"
    engine = open_engine(directory / "aggregator", spec)
    silos = local_silos(directory, synthetic_runners(spec))
    while len(engine.history()) < 3:
        assert [silo.answer(engine) for silo in silos]
        engine.settle()
    again = open_engine(directory / "aggregator", spec)
    drive(again, silos)
    for name, found in model_of(again).items():
        np.testing.assert_allclose(found, (means[0][name] + means[1][name]) / 2, rtol=1e-4, atol=1e-5)
        assert np.abs(found - means[1][name]).max() > 1e-3


def test_an_average_of_batchnorms_statistics_is_one_of_the_same_type(method: type[Method]) -> None:
    names = {"bn.running_var": (0.2, 0.4), "bn.num_batches_tracked": (3, 8)}
    rounds = [
        {silo: {name: np.array(values[number]) for name, values in names.items()} for silo in SILOS}
        for number in (0, 1)
    ]
    *_, (_, model) = aggregated_rounds(State({"model": dict(rounds[0][SILOS[0]])}), rounds, 0)
    np.testing.assert_allclose(model["bn.running_var"], 0.3)
    assert model["bn.num_batches_tracked"] == 5
    assert model["bn.num_batches_tracked"].dtype == np.int64


def test_the_command_line_describes_it(method: type[Method], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", method.name]) == 0
    assert "start: number at least 0 below 1; default 0.75" in capsys.readouterr().out
