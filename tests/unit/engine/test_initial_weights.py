"""A job begins from the weights of its file, whatever the method, and says which tensors are of another model."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.traffic import estimate_traffic
from fedsilo.errors import DataInvalid, MethodError, ProvenanceInvalid
from fedsilo.learning.models import build_model, initial_model, to_tree
from fedsilo.methods import registry
from fedsilo.methods.interface import INITIAL_WEIGHTS
from fedsilo.methods.state import Tree
from fedsilo.wire import open_task
from tests.federate import (
    TASK_KEY,
    drive,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    skewed_silos,
)
from tests.unit.verification.chains import edit_and_link, replay_directory, verify_directory

CLASSES_OF = {"s0": [0, 1], "s1": [1, 2, 3]}


def weights_of(spec: FederatedJobSpec, seed: int) -> Tree:
    return {name: array.copy() for name, array in to_tree(build_model(spec.model, spec.data, seed)).items()}


def save_tree(path: Path, tree: Tree) -> str:
    """Write a file as the safetensors library does, which orders tensors otherwise; its digest."""
    save_file(tree, path, metadata={"format": "pt"})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def beginning_with(
    tree: Tree, tmp_path: Path, method: str = "fedavg", /, **sections: Any
) -> FederatedJobSpec:
    """A job whose initial weights are a file `start.safetensors` with these tensors."""
    digest = save_tree(tmp_path / "start.safetensors", tree)
    model = {"initialWeights": {"sha256": digest, "file": "start.safetensors"}}
    return job_spec(method, list(CLASSES_OF), rounds=2, model=model, **sections)


def plain_spec(method: str = "fedavg") -> FederatedJobSpec:
    return job_spec(method, list(CLASSES_OF), rounds=2)


def train_job(spec: FederatedJobSpec, tmp_path: Path, name: str) -> Path:
    """Run the job to its end; its aggregator's directory."""
    directory = tmp_path / name / "aggregator"
    engine = open_engine(directory, spec, root=tmp_path)
    silos = local_silos(tmp_path / name, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path))
    drive(engine, silos)
    assert engine.failure is None
    return directory


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("fedavg", {}),
        ("scaffold", {}),
        pytest.param("map", {"variant": "released"}, marks=pytest.mark.thorough),
        pytest.param("fedphp", {"variant": "released"}, marks=pytest.mark.thorough),
    ],
)
def test_weights_of_the_seed_in_a_file_give_the_model_of_the_seed(
    tmp_path: Path, method: str, config: dict[str, Any]
) -> None:
    method_section = {"name": method, "config": config}
    without = job_spec(method, list(CLASSES_OF), rounds=2, method=method_section)
    given = beginning_with(initial_model(without), tmp_path, method, method=method_section)
    one, other = train_job(without, tmp_path, "seed"), train_job(given, tmp_path, "file")
    model = "model.safetensors"
    assert (one / model).read_bytes() == (other / model).read_bytes()


def test_other_weights_give_another_model_and_round_one_hands_them_out(tmp_path: Path) -> None:
    tree = weights_of(plain_spec(), seed=5)
    spec = beginning_with(tree, tmp_path)
    engine = open_engine(tmp_path / "aggregator", spec, root=tmp_path)
    handed = engine.state.tree("model")
    assert list(handed) == list(tree)
    assert all(np.array_equal(handed[name], tree[name]) for name in tree)
    sealed = engine.task("silos/s0")
    assert sealed is not None
    assert [link.name for link in open_task(sealed.sealed, TASK_KEY.verify_key).blobs] == ["model"]


def test_silos_that_need_them_get_the_file_itself(tmp_path: Path) -> None:
    config = {"name": "map", "config": {"variant": "released"}}
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path, "map", method=config)
    engine = open_engine(tmp_path / "aggregator", spec, root=tmp_path)
    sealed = engine.task("silos/s0")
    assert sealed is not None and spec.model.initial_weights is not None
    blobs = {link.name: link.digest for link in open_task(sealed.sealed, TASK_KEY.verify_key).blobs}
    assert blobs[INITIAL_WEIGHTS] == spec.model.initial_weights.sha256


def test_a_half_that_asks_for_them_undeclared_is_told_so(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path)
    runner = runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path)["silos/s0"]
    with pytest.raises(MethodError, match=r"fedavg asks for the initial weights .* silos_need_initial"):
        runner.context.initial_model()


def test_a_restarted_aggregator_does_not_need_the_file_any_more(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path)
    expected = model_of(open_and_run(spec, tmp_path, "whole"))
    engine = open_engine(tmp_path / "again" / "aggregator", spec, root=tmp_path)
    silos = local_silos(tmp_path / "again", runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path))
    silos[0].answer(engine)
    (tmp_path / "start.safetensors").unlink()
    engine = open_engine(tmp_path / "again" / "aggregator", spec, root=tmp_path)
    drive(engine, silos)
    found = model_of(engine)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def open_and_run(spec: FederatedJobSpec, tmp_path: Path, name: str) -> Any:
    engine = open_engine(tmp_path / name / "aggregator", spec, root=tmp_path)
    drive(engine, local_silos(tmp_path / name, runners(spec, skewed_silos(tmp_path, CLASSES_OF), tmp_path)))
    return engine


def test_the_model_of_an_earlier_run_by_its_directory(tmp_path: Path) -> None:
    first = train_job(plain_spec(), tmp_path, "first")
    digest = hashlib.sha256((first / "model.safetensors").read_bytes()).hexdigest()
    model = {"initialWeights": {"sha256": digest, "run": "first/aggregator"}}
    spec = job_spec("fedavg", list(CLASSES_OF), rounds=1, model=model)
    weights = initial_weights(spec, tmp_path)
    assert weights is not None and weights.ref.digest == digest
    assert list(JobContext.of(registry.bind(spec), ["silos/s0"], weights).initial_model()) == list(
        initial_model(plain_spec())
    )


def test_provenance_says_what_the_job_began_with_and_replay_begins_there(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path, aggregator={"keepUpdates": True})
    directory = train_job(spec, tmp_path, "job")
    replay_directory(directory)
    assert spec.model.initial_weights is not None
    assert verify_directory(directory).start.trees[INITIAL_WEIGHTS] == spec.model.initial_weights.sha256
    held = directory / "blobs" / spec.model.initial_weights.sha256
    moved = held.rename(tmp_path / "moved")
    with pytest.raises(ProvenanceInvalid, match=rf"{re.escape(str(held))}: is missing; put the file of"):
        replay_directory(directory)
    moved.rename(held)
    edit_and_link(
        directory, lambda lines: lines[0]["state"]["trees"].update({INITIAL_WEIGHTS: "0" * 64}), TASK_KEY
    )
    with pytest.raises(ProvenanceInvalid, match=r"job: began with initial weights 000000000000, but spec\."):
        verify_directory(directory)


def test_the_traffic_of_a_job_is_estimated_without_the_file(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path)
    (tmp_path / "start.safetensors").unlink()
    silos = [f"silos/{name}" for name in CLASSES_OF]
    estimate, without = (estimate_traffic(registry.bind(one), silos) for one in (spec, plain_spec()))
    assert (estimate.up, estimate.down) == (without.up, without.down)


def refusal(spec: FederatedJobSpec, tmp_path: Path) -> str:
    with pytest.raises(DataInvalid) as caught:
        JobContext.of(registry.bind(spec), ["silos/s0"], initial_weights(spec, tmp_path))
    return str(caught.value).replace(str(tmp_path), "ROOT")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path)
    (tmp_path / "start.safetensors").unlink()
    assert refusal(spec, tmp_path) == (
        "spec.model.initialWeights: ROOT/start.safetensors: there is no such file; paths start from ROOT, where the "
        "aggregator runs"
    )


def test_a_file_with_another_digest(tmp_path: Path) -> None:
    spec = beginning_with(weights_of(plain_spec(), 5), tmp_path)
    digest = save_tree(tmp_path / "start.safetensors", weights_of(plain_spec(), 6))
    assert spec.model.initial_weights is not None
    assert refusal(spec, tmp_path) == (
        f"spec.model.initialWeights: ROOT/start.safetensors: its SHA-256 is {digest[:12]}, not "
        f"{spec.model.initial_weights.sha256[:12]}; state the digest of the file in sha256, or name the right file"
    )


def test_weights_of_another_architecture(tmp_path: Path) -> None:
    tree = weights_of(plain_spec(), 5)
    tree["head.weight"] = tree.pop("classifier.weight")
    tree["classifier.bias"] = np.zeros(7, np.float32)
    tree["encoder.0.bias"] = tree["encoder.0.bias"].astype(np.float16)
    assert refusal(beginning_with(tree, tmp_path), tmp_path) == (
        "spec.model.initialWeights: ROOT/start.safetensors: is not of the job's model: "
        "tensor encoder.0.bias is float16, the model's float32; tensor classifier.weight is missing; "
        "tensor classifier.bias has shape [7], the model's [4]; tensor head.weight is none of the model; "
        "use the weights of the same architecture and configuration"
    )


def test_a_file_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "start.pt").write_bytes(b"PK" + bytes(100))
    digest = hashlib.sha256((tmp_path / "start.pt").read_bytes()).hexdigest()
    spec = job_spec("fedavg", 1, model={"initialWeights": {"sha256": digest, "file": "start.pt"}})
    assert re.match(
        r"spec.model.initialWeights: ROOT/start.pt: tensor file ROOT/start.pt: 102 bytes with a header of .*; write it "
        "again",
        refusal(spec, tmp_path),
    )


def test_weights_that_are_not_finite_are_none_to_begin_with(tmp_path: Path) -> None:
    tree = weights_of(plain_spec(), seed=5)
    tree["classifier.bias"][1] = np.nan
    spec = beginning_with(tree, tmp_path)
    with pytest.raises(
        DataInvalid, match=r"start.safetensors: has NaN or infinity in classifier.bias; training"
    ):
        open_engine(tmp_path / "aggregator", spec, root=tmp_path)
