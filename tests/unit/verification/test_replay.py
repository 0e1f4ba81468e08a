"""Folding the kept updates again gives every state and the model, or names where it does not."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.allowed_imports import looking_at
from fedsilo.engine.bound_half import BoundHalf
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FileDamaged, ImportNotAllowed, JobFailed, ManifestInvalid, ProvenanceInvalid
from fedsilo.methods import registry
from fedsilo.methods.interface import Assignment, Exchange, Snapshot
from fedsilo.methods.state import State, Tree
from fedsilo.transforms.transform import Broadcast, ReceivedExchange
from fedsilo.verification.chain import verify
from fedsilo.verification.place import find
from fedsilo.verification.replay import public_dataset, replay
from tests.federate import federate, job_spec, runners, skewed_silos
from tests.public_examples import balanced_dataset
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.verification.chains import replay_directory, verify_directory
from tests.unit.verification.conftest import SPEC

KEPT_UPDATE = "kept/r00002-train/r00002-train-s1.update"


def test_an_untouched_directory_folds_to_the_same_bytes(finished_job: Path) -> None:
    replay_directory(finished_job)


@pytest.mark.parametrize(
    ("method", "rounds", "config"),
    [
        ("fedconcat", 5, {"clusters": 2, "encoderRounds": 2, "classifierRounds": 2}),
        ("creff", 2, {}),
        ("ccvr", 3, {}),
        ("scaffold", 2, {}),
    ],
)
def test_the_folds_of_every_kind_of_method_are_repeated(
    tmp_path: Path, method: str, rounds: int, config: dict[str, Any]
) -> None:
    classes_of = {"s0": [0, 1], "s1": [1, 2], "s2": [2, 3]}
    spec = job_spec(
        method,
        list(classes_of),
        rounds=rounds,
        method={"name": method, "config": config},
        aggregator={"keepUpdates": True},
    )
    silos = skewed_silos(tmp_path, classes_of)
    federate(tmp_path, spec, runners(spec, silos, tmp_path))
    replay_directory(tmp_path / "aggregator")


def lying_directory(monkeypatch: pytest.MonkeyPatch, root: Path, function: str, lie: Any) -> Path:
    """Directory of an aggregator with a function of its own, which signs what that makes of the job."""
    with monkeypatch.context() as patch:
        patch.setattr(Workflow, function, lie)
        federate(root, SPEC, synthetic_runners(SPEC))
    verify_directory(root / "aggregator")  # every signature holds
    return root / "aggregator"


def changed_tree(tree: Tree) -> Tree:
    return {name: np.nextafter(array, np.float32(1)) for name, array in tree.items()}


def test_a_fold_that_was_not_the_methods_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Workflow._aggregate_received

    def lie(self: Workflow, received: ReceivedExchange) -> State:
        after, round = honest(self, received), received.exchange.round
        return after.with_trees(model=changed_tree(after.tree("model"))) if round == 2 else after

    directory = lying_directory(monkeypatch, tmp_path, "_aggregate_received", lie)
    with pytest.raises(
        ProvenanceInvalid,
        match=r"provenance.json: round 2 \(r00002-train\): state: tree model is .*, but folding gives .*; the same",
    ):
        replay_directory(directory)


def test_updates_that_a_job_would_have_ended_with_are_named(
    finished_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise JobFailed("a sum that no silos can have")

    monkeypatch.setattr(Workflow, "fold", failing)
    with pytest.raises(
        ProvenanceInvalid, match=r"round 1 \(r00001-train\): its updates fold to nothing: a sum that no silos"
    ):
        replay_directory(finished_job)


def test_values_that_are_not_the_methods_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Workflow._aggregate_received

    def lie(self: Workflow, received: ReceivedExchange) -> State:
        return honest(self, received).with_values(note=received.exchange.round)

    directory = lying_directory(monkeypatch, tmp_path, "_aggregate_received", lie)
    with pytest.raises(ProvenanceInvalid, match=r"round 1 \(r00001-train\): state: its values are not those"):
        replay_directory(directory)


def test_another_beginning_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Workflow.start

    def lie(self: Workflow) -> State:
        start = honest(self)
        return start.with_trees(model=changed_tree(start.tree("model")))

    directory = lying_directory(monkeypatch, tmp_path, "start", lie)
    with pytest.raises(ProvenanceInvalid, match=r"provenance.json: job: state: tree model is "):
        replay_directory(directory)


def test_another_task_than_the_methods_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Workflow.assign

    def lie(self: Workflow, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        broadcast = honest(self, state, exchange, silos)
        given = {
            silo: Assignment(given.trees, {"curious": True}) if silo == "silos/s1" else given
            for silo, given in broadcast.assignments.items()
        }
        return replace(broadcast, assignments=given)

    directory = lying_directory(monkeypatch, tmp_path, "assign", lie)
    with pytest.raises(
        ProvenanceInvalid,
        match=r"round 1 \(r00001-train\): task of silos/s1: has settings {'curious': True}, but the method gives {}",
    ):
        replay_directory(directory)


def test_a_model_that_is_not_the_last_states_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = BoundHalf.model

    def lie(self: BoundHalf, state: State) -> Snapshot:
        snapshot = honest(self, state)
        return Snapshot(changed_tree(dict(snapshot.tree)), snapshot.settings)

    with monkeypatch.context() as patch:
        patch.setattr(BoundHalf, "model", lie)
        spec = job_spec("fedavg", 2, aggregator={"keepUpdates": True})
        federate(tmp_path, spec, synthetic_runners(spec))
    directory = tmp_path / "aggregator"
    verify_directory(directory)
    with pytest.raises(ProvenanceInvalid, match=r"round 1 \(r00001-evaluate\): task of silos/s0: sends "):
        replay_directory(directory)


def test_an_update_that_was_changed_below_its_header_is_named(directory: Path) -> None:
    """Nobody can have other tensors under a silo's header, and the replay does not rely on who looked before it."""
    path, place = directory / KEPT_UPDATE, find(directory)
    chain = verify(place, {})
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refusal = re.escape(f"{path}: round 2, silo silos/s1: digest-mismatch: ")
    with pytest.raises(ProvenanceInvalid, match=refusal):
        verify_directory(directory)
    with pytest.raises(ProvenanceInvalid, match=refusal):
        replay(place, chain)


def test_a_missing_update_is_named(directory: Path) -> None:
    shutil.rmtree(directory / "kept")
    with pytest.raises(
        ProvenanceInvalid,
        match=re.escape("r00001-train-s0.update: round 1, silo silos/s0: is missing; updates are kept where"),
    ):
        replay_directory(directory)


def test_a_model_of_ones_own_is_imported_where_a_person_has_allowed_it(tmp_path: Path) -> None:
    spec = job_spec(
        "fedavg",
        2,
        aggregator={"keepUpdates": True},
        model={"name": "python:tests.unit.silo.networks:tied_network", "config": {}},
    )
    federate(tmp_path, spec, synthetic_runners(spec))
    with (
        looking_at("provenance.json"),
        pytest.raises(ImportNotAllowed, match=r"^provenance.json: spec.model.name: "),
    ):
        replay_directory(tmp_path / "aggregator")
    with looking_at("provenance.json", ["tests.unit.silo.networks:tied_network"]):
        replay_directory(tmp_path / "aggregator")


@pytest.fixture(scope="module")
def with_public_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose public examples lie in a file, as its aggregator has left it."""
    root = tmp_path_factory.mktemp("public")
    images, labels = balanced_dataset((6,), 4)
    np.savez(root / "public.npz", images=images, labels=labels)
    held = {"name": "held", "loader": "npz", "config": {"path": str(root / "public.npz")}}
    aggregator = {"keepUpdates": True, "datasets": [held]}
    spec = job_spec("feddf", ["s0", "s1"], aggregator=aggregator, aggregation={"publicDataset": "held"})
    silos = skewed_silos(root, {"s0": [0, 1], "s1": [2, 3]})
    federate(root, spec, runners(spec, silos, root))
    return root


@pytest.mark.thorough
def test_public_examples_are_read_where_a_person_says_that_they_lie(
    with_public_files: Path, tmp_path: Path
) -> None:
    place = find(with_public_files / "aggregator")
    chain = verify(place, {})
    replay(place, chain, with_public_files)
    with pytest.raises(
        ManifestInvalid, match=r"held: is read from files; name the directory .* with --data DIR"
    ):
        replay(place, chain)
    with pytest.raises(ManifestInvalid, match=r"public\.npz': lies outside of "):
        replay(place, chain, tmp_path)


@pytest.mark.parametrize(
    ("public", "said"), [("elsewhere", "elsewhere"), (None, "null")], ids=["of no dataset", "absent"]
)
def test_a_public_dataset_that_the_aggregator_does_not_hold_is_named(
    finished_job: Path, public: str | None, said: str
) -> None:
    place = find(finished_job)
    spec = job_spec("feddf", 2)
    aggregation = spec.aggregation.model_copy(update={"public_dataset": public})
    spec = spec.model_copy(update={"aggregation": aggregation})
    job = dataclasses.replace(verify(place, {}).job, spec=spec, method=registry.bind(spec))
    with pytest.raises(
        ManifestInvalid,
        match=rf"spec\.aggregation\.publicDataset: {said}: is not among spec\.aggregator\.datasets",
    ):
        public_dataset(place, job, finished_job)


@pytest.mark.parametrize("put", [Path.touch, lambda path: path.symlink_to("nowhere")], ids=["file", "link"])
def test_what_lies_in_the_place_of_the_kept_updates_is_named(
    directory: Path, put: Callable[[Path], object]
) -> None:
    place = find(directory)
    chain = verify(place, {})
    shutil.rmtree(directory / "kept")
    put(directory / "kept")
    with pytest.raises(FileDamaged, match=re.escape(f"{directory / 'kept'}: is not a directory; put ")):
        verify(place, {})
    with pytest.raises(
        ProvenanceInvalid, match=r"round 1, silo silos/s0: (cannot be read \(Not a|is missing)"
    ):
        replay(place, chain)


def test_initial_weights_are_not_read_through_a_link_out_of_the_directory(
    finished_job: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    content = b"of nobody's business"
    digest = hashlib.sha256(content).hexdigest()
    (outside / digest).write_bytes(content)
    chain = verify(find(finished_job), {})
    weights = {"run": "before", "sha256": digest}
    spec = job_spec("fedavg", 3, model={"name": "mlp", "config": {"hidden": [5]}, "initialWeights": weights})
    root = tmp_path / "stranger"
    root.mkdir()
    (root / "blobs").symlink_to(outside)
    place = dataclasses.replace(find(finished_job), root=root, kept=root / "kept")
    job = dataclasses.replace(chain.job, spec=spec, method=registry.bind(spec))
    with pytest.raises(ProvenanceInvalid, match="lies in blobs, which is a link"):
        replay(place, dataclasses.replace(chain, job=job))


@pytest.mark.parametrize(
    ("loader", "config", "message"),
    [
        ("npz", {"path": "../public.npz"}, "lies outside of"),
        ("npz", {"path": "link.npz"}, "lies outside of"),
        ("npz", {"path": "inside.npz", "features": "/etc/passwd"}, "lies outside of"),
        ("csv", {"path": "inside.csv", "features": ["../x"], "label": "y"}, "lies outside of"),
        ("torchvision:MNIST", {"path": ".", "download": True}, "would be downloaded"),
    ],
)
def test_a_specification_reads_nothing_outside_of_that_place(
    finished_job: Path, tmp_path: Path, loader: str, config: dict[str, Any], message: str
) -> None:
    (tmp_path / "link.npz").symlink_to("/etc/passwd")
    place = find(finished_job)
    held = {"name": "held", "loader": loader, "config": config}
    spec = job_spec("feddf", 2, aggregator={"datasets": [held]}, aggregation={"publicDataset": "held"})
    job = dataclasses.replace(verify(place, {}).job, spec=spec, method=registry.bind(spec))
    with pytest.raises(ManifestInvalid, match=message):
        public_dataset(place, job, tmp_path)
