"""FedPHP against the released code, and inherited private models against the equations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.faults import ManifestFaults
from fedsilo.errors import MethodError
from fedsilo.learning.models import build_model, signature
from fedsilo.methods import registry
from fedsilo.methods.components.inherited import SELECTIONS, kept_share
from fedsilo.methods.fedphp import FedPHPConfig
from fedsilo.methods.interface import PERSONAL_TREE, SiloTask
from fedsilo.methods.state import State, Tree
from tests import reference_numbers
from tests.federate import (
    bound_method,
    drive,
    federate,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    skewed_silos,
)
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    ROUND,
    ObservedSilo,
    RecordedSilo,
    assert_close,
    run_recorded_job,
    server_context,
)

PAPER_VARIANT, RELEASED_VARIANT = FedPHPConfig(), FedPHPConfig(variant="released")


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_the_released_form_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedphp_kd")
    config = {"variant": "released", "transferWeight": float(npz["arg/reg_lamb"])}
    # The schedule of mu_k is that of the whole job, of which the first rounds are looked at.
    engine, silos = run_recorded_job(
        tmp_path, "fedphp", "map_fedphp_kd", 3, config, aggregation={}, stop=rounds
    )
    assert_close(engine.state.tree("model"), fixture_tree(npz, f"round{rounds}/g/"))
    for k, silo in enumerate(silos):
        assert_close(silo.private_state.tree(PERSONAL_TREE), fixture_tree(npz, f"round{rounds}/hpms/{k}/"))
        assert silo.private_state.values == {SELECTIONS: rounds}


def test_the_released_schedule_is_that_of_the_released_code() -> None:
    npz = reference_numbers.load("map_pieces")
    expected = float(npz["q"]) * int(npz["T"])
    found = [
        kept_share(RELEASED_VARIANT, before, expected)
        for before in range(len(npz["mu_by_previous_selections"]))
    ]
    np.testing.assert_allclose(found, npz["mu_by_previous_selections"], rtol=1e-12)


def test_the_printed_schedule_counts_the_present_participation() -> None:
    assert [kept_share(PAPER_VARIANT, before, 30) for before in (0, 9, 29, 40)] == pytest.approx(
        [0.03, 0.3, 0.9, 1.0]
    )


@given(
    before=st.integers(0, 10_000),
    fraction=st.floats(0.001, 1),
    rounds=st.integers(1, 10_000),
    mu=st.floats(0, 1),
    variant=st.sampled_from(["paper", "released"]),
)
def test_what_is_kept_is_a_part(before: int, fraction: float, rounds: int, mu: float, variant: str) -> None:
    config = FedPHPConfig(inheritance=mu, variant=variant)
    assert 0 <= kept_share(config, before, fraction * rounds) <= (mu if variant == "released" else 1)


def trained_models(
    directory: Path, classes_of: dict[str, list[int]], rounds: int, **config: object
) -> list[Tree]:
    """Private models after some rounds, and the silos' common model as the last."""
    spec = job_spec("fedphp", list(classes_of), rounds, method={"config": config})
    silos = local_silos(directory, runners(spec, skewed_silos(directory, classes_of), directory))
    engine = open_engine(directory / "aggregator", spec)
    drive(engine, silos)
    return [*(silo.private_state.tree(PERSONAL_TREE) for silo in silos), model_of(engine)]


def test_after_its_first_round_a_silos_model_is_what_it_sent(tmp_path: Path) -> None:
    personal, common = trained_models(tmp_path, {"a": [0, 1]}, 1)
    for name, array in common.items():
        np.testing.assert_array_equal(personal[name], array)


def test_a_silos_model_stays_between_what_it_was_and_what_it_learned(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, _ = trained_models(tmp_path / "one", {"a": [0, 1]}, 1, transferWeight=0)
    second, common = trained_models(tmp_path / "two", {"a": [0, 1]}, 2, transferWeight=0)
    for name, new in common.items():  # mu_k = 0.9 * 2 / 2
        np.testing.assert_allclose(second[name], 0.9 * first[name] + np.float32(0.1) * new, atol=1e-6)


@pytest.mark.parametrize(("fraction", "q"), [(0.1, 1 / 3), (0.5, 2 / 3)])
def test_the_schedule_counts_the_silos_that_are_drawn_and_not_the_fraction(
    tmp_path: Path, fraction: float, q: float
) -> None:
    """One of three silos takes part in each round at a fraction of 0.1."""
    classes_of = {"a": [0, 1], "b": [1, 2], "c": [2, 3]}
    spec = job_spec("fedphp", list(classes_of), 6, participation={"fraction": fraction})
    real = runners(spec, skewed_silos(tmp_path, classes_of), tmp_path)
    observed = {silo: ObservedSilo(runner) for silo, runner in real.items()}
    federate(tmp_path, spec, observed)
    again, name = 0, "classifier.weight"
    for silo in observed.values():
        replies = [reply for (step, _), (_, reply) in silo.seen.items() if step == "train"]
        own = [reply.private.tree(PERSONAL_TREE)[name] for reply in replies if reply.private]
        for z in range(2, len(replies) + 1):
            mu, old, sent = min(0.9 * z / (q * 6), 1.0), own[z - 2], replies[z - 1].tensors[name]
            np.testing.assert_allclose(own[z - 1], mu * old + (1 - mu) * sent, rtol=1e-5, atol=1e-6)
            again += 1
    assert again >= 3


@pytest.mark.parametrize("method", ["fedphp", "map", "scamap"])
def test_every_method_with_private_models_tells_what_part_of_the_silos_is_drawn(method: str) -> None:
    spec = job_spec(method, 10, participation={"fraction": 0.25})
    half = registry.bind(spec).server()
    job = server_context(spec, signature(build_model(spec.model, spec.data, seed=0)))
    assigned = half.assign(job, half.start(job), ROUND, job.silos[:3])
    assert [asked.settings for asked in assigned.values()] == [{"drawn": 0.3}] * 3


@pytest.mark.parametrize("drawn", [None, 0.0, 1.5, float("nan")])
def test_a_task_without_the_part_that_is_drawn_is_refused(tmp_path: Path, drawn: float | None) -> None:
    (runner,) = runners(job_spec("fedphp", ["a"]), skewed_silos(tmp_path, {"a": [0]}), tmp_path).values()
    settings = {} if drawn is None else {"drawn": drawn}
    task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, settings)
    with pytest.raises(MethodError, match=r"task setting drawn: (is missing|\S+ is not above 0)"):
        runner.run(task, State())


def test_a_silo_that_was_never_drawn_has_no_model_of_its_own(tmp_path: Path) -> None:
    spec = job_spec("fedphp", ["a", "b"], 2, participation={"minSilos": 1})
    answering = runners(spec, skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]}), tmp_path)
    left_out = RecordedSilo(answering["silos/b"], np.array([False, False]))
    silos = local_silos(tmp_path, answering | {"silos/b": left_out})
    engine = open_engine(tmp_path / "aggregator", spec)
    drive(engine, silos)
    assert engine.failure is None
    assert PERSONAL_TREE in silos[0].private_state.trees
    assert PERSONAL_TREE not in silos[1].private_state.trees


def test_without_transfer_the_common_model_is_that_of_fedavg(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2]})
    found = []
    for method, config in (("fedavg", {}), ("fedphp", {"transferWeight": 0, "transfer": "mmd"})):
        spec = job_spec(method, ["a", "b"], 2, method={"config": config})
        found.append(model_of(federate(tmp_path / method, spec, runners(spec, silos, tmp_path))))
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("transferWeight", -0.1),
        ("transferWeight", 1.1),
        ("temperature", 0),
        ("temperature", float("nan")),
        ("inheritance", 1.5),
        ("transfer", "hints"),
    ],
)
def test_a_setting_out_of_range_is_refused(field: str, value: object) -> None:
    with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}"):
        bound_method("fedphp", config={field: value})
