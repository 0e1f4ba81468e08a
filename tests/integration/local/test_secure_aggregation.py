"""Jobs whose aggregator sees sums only, with real guards: the plain job's model, and silos that are lost on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.cli.main import main
from fedsilo.methods.state import Tree
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.secure_aggregation.masks import add_mask
from fedsilo.secure_aggregation.messages import (
    ANNOUNCEMENT_BYTES,
    KeyAnnouncement,
    SumContext,
    Unmasking,
)
from fedsilo.secure_aggregation.parts import SAMPLES_BOUND, VALUE_BOUND
from fedsilo.secure_aggregation.shamir import combine
from fedsilo.secure_aggregation.silo_side import own_mask, pair_mask
from fedsilo.wire import VerifyKey, open_blob, open_update
from tests.integration.local.manifest import silo, silos, write
from tests.integration.local.runs import EndedRun, run

NAMES = ("north", "east", "south", "west")

SECURE_SETTINGS = {"secure": True}


def lines(workdir: Path, name: str, event: str) -> list[dict[str, Any]]:
    log = workdir / "silos" / name / "audit" / "log.jsonl"
    return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == event]


def model(ended: EndedRun) -> dict[str, np.ndarray]:
    return open_blob(ended.workdir / "model.safetensors").tree()


@pytest.fixture(scope="module")
def secure_run(tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A job of four silos that ended well, with its updates kept."""
    folder = tmp_path_factory.mktemp("secure")
    manifest = write(
        folder / "secure.yaml",
        silos(*NAMES),
        aggregation=SECURE_SETTINGS,
        participation={"minSilos": 3},
        aggregator={"keepUpdates": True},
    )
    return run(manifest, folder / "run")


def test_the_model_is_that_of_the_plain_job_and_of_a_simulation(secure_run: EndedRun, tmp_path: Path) -> None:
    assert secure_run.code == 0, secure_run.err
    plain = run(write(tmp_path / "plain.yaml", silos(*NAMES)), tmp_path / "plain", "--in-process")
    for name, array in model(secure_run).items():
        np.testing.assert_allclose(array, model(plain)[name], atol=1e-6)
    simulated = run(secure_run.workdir.parent / "secure.yaml", tmp_path / "simulated", "--in-process")
    assert simulated.document["model"]["sha256"] == secure_run.document["model"]["sha256"]


def test_nothing_of_a_single_silo_is_on_record(secure_run: EndedRun) -> None:
    first = secure_run.history[0]
    assert (first["samples"], first["silos"]) == ({}, {})
    assert first["summed"]["silos"] == [f"silo-{name}/{name}" for name in NAMES]
    assert first["summed"]["samples"] == secure_run.document["samples"] > 1000
    assert first["training"].keys() == {"loss"}
    assert [entry["samples"] for entry in secure_run.document["silos"]] == [None] * 4


def test_every_message_is_in_the_audit_log_and_only_masked_updates_are_large(secure_run: EndedRun) -> None:
    departed = lines(secure_run.workdir, "north", "departure")
    each = ["train.shares", "train", "train.survivors", "train.unmask"]
    assert [line["phase"] for line in departed] == ["train.keys", *each, *each]
    assert all(line["kinds"].keys() == {"secure_aggregation"} for line in departed)
    sizes = [line["kinds"]["secure_aggregation"]["bytes"] for line in departed]
    numbers = sum(array.size for array in model(secure_run).values())
    shares, masked, confirmed = 3 * 148, 8 * (numbers + 4), 96
    first, last = [shares, masked, confirmed, 4 * 66 + 160], [shares, masked, confirmed, 4 * 66]
    assert sizes == [160, *first, *last]
    assert [line["samples"] for line in departed] == [0] * 9


LAST_TASK = "r00002-train"
"""The last sum, of which silos still have their secrets."""


def message(secure: EndedRun, step: str, name: str, of: str = LAST_TASK) -> bytes:
    """What a silo has sent in a step of a sum, as the aggregator keeps it."""
    (path,) = (secure.workdir / "aggregator").rglob(f"{of}.{step}-{name}.update")
    with open_update(path) as update:
        return update.tensor("message").tobytes()


def stripped_vector(secure: EndedRun, victim: str, colluding: Sequence[str]) -> np.ndarray:
    """The victim's masked vector without all masks that the aggregator and these silos know together."""
    config = json.loads((secure.workdir / "aggregator" / "config.json").read_text())
    names = {f"{silo['namespace']}/{silo['name']}": silo["name"] for silo in config["silos"]}
    keys = {
        ref: VerifyKey.from_text(silo["publicKey"]) for ref, silo in zip(names, config["silos"], strict=True)
    }
    context = SumContext(config["job"]["metadata"]["uid"], LAST_TASK, keys, threshold=3)
    before = {
        ref: message(secure, "unmask", name, of="r00001-train")[-ANNOUNCEMENT_BYTES:]
        for ref, name in names.items()
    }
    announced = {ref: KeyAnnouncement.from_bytes(row) for ref, row in before.items()}
    own = f"silo-{victim}/{victim}"
    told = {
        context.point(ref): Unmasking.from_bytes(message(secure, "unmask", name), list(names), list(names))
        for ref, name in names.items()
    }
    seed = combine({point: found.seeds[own] for point, found in told.items()}, context.threshold)
    assert seed is not None
    (path,) = (secure.workdir / "aggregator").rglob(f"{LAST_TASK}-{victim}.update")
    with open_update(path) as update:
        vector = update.tensor("masked").copy()
    add_mask(vector, own_mask(seed, context), -1)
    for name in colluding:
        secrets = json.loads(
            (secure.workdir / "silos" / name / "guard" / "sums" / f"{LAST_TASK}.json").read_text()
        )
        sent = bytes.fromhex(secrets["told"]["sent"])
        secret = pair_mask(bytes.fromhex(secrets["maskKey"]), announced[own].mask_key, context, sent)
        first = context.point(own) < context.point(f"silo-{name}/{name}")
        add_mask(vector, secret, -1 if first else 1)
    return vector


def models_of(secure: EndedRun) -> list[Tree]:
    """The models that the guard of north still has, from one of which it trained last."""
    blobs = (secure.workdir / "silos" / "north" / "inbox" / "blobs").iterdir()
    trees = [open_blob(path).tree() for path in blobs]
    return [tree for tree in trees if any(array.dtype == np.float32 for array in tree.values())]


@pytest.mark.parametrize(
    ("colluding", "found"), [([], False), (["east"], False), (["east", "south", "west"], True)]
)
def test_an_aggregator_and_a_silo_that_collude_do_not_find_an_update(
    secure_run: EndedRun, colluding: Sequence[str], found: bool
) -> None:
    """With every key, message and mask that they have; all other silos together know what they subtract."""
    vector = stripped_vector(secure_run, "north", colluding)
    drop = secure_run.workdir / "silos" / "north" / "drop" / f"{LAST_TASK}-north"
    update = open_blob(drop / "tensors").tree()
    samples = json.loads((drop / "reply.json").read_text())["samples"]
    assert (vector[0] == samples << FixedPoint(4, SAMPLES_BOUND).bits) == found
    names = [name for name in update if update[name].dtype == np.float32]
    own = np.concatenate([update[name].reshape(-1) for name in names]).astype(np.float64)
    changes = [
        own - np.concatenate([sent[name].reshape(-1) for name in names]) for sent in models_of(secure_run)
    ]
    point = FixedPoint(4, SAMPLES_BOUND * VALUE_BOUND)
    recovered = point.decode(vector[4:])
    errors = [np.abs(recovered - samples * change).max() for change in changes]
    assert (min(errors) <= 2.0**-point.bits) == found
    if not found:
        likeness = [abs(np.corrcoef(recovered, change)[0, 1]) for change in changes]
        assert max(likeness) < 0.15, "as of random numbers"


def run_that_loses_west(folder: Path, rounds: int, quorum: int) -> EndedRun:
    """A run of four silos, which score the model; the trainer of west, which has few examples, is lost in round 2."""
    few = silo("west", {"partition": {"scheme": "iid", "silos": 8, "index": 7}})
    trainer = "python:tests.integration.local.own_training:lost_in_round_two"
    manifest = write(
        folder / "lost.yaml",
        [*silos("north", "east", "south"), few],
        aggregation=SECURE_SETTINGS,
        training={"rounds": rounds, "trainer": trainer},
        participation={"minSilos": quorum},
        evaluation={"testDataset": None},
        aggregator={"datasets": []},
        data={"validationFraction": 0.2},
        backoffLimit=0,
    )
    return run(manifest, folder / "run")


@pytest.mark.thorough
def test_silos_that_are_lost_after_they_have_shared_leave_the_sum_of_the_others(tmp_path: Path) -> None:
    ended = run_that_loses_west(tmp_path, rounds=3, quorum=3)
    assert ended.code == 0, ended.err
    assert [len(record["summed"]["silos"]) for record in ended.history] == [4, 3, 3]
    assert "TrainerLost" in ended.history[1]["failed"]["silo-west/west"]
    assert all(0 < record["metrics"]["accuracy"] < 1 for record in ended.history), (
        "three silos' scores will do"
    )
    assert "r00002-train.shares-west" in {line["task"] for line in lines(ended.workdir, "west", "departure")}


@pytest.mark.thorough
def test_below_the_quorum_nothing_is_unmasked_and_the_job_says_so(tmp_path: Path) -> None:
    ended = run_that_loses_west(tmp_path, rounds=2, quorum=4)
    assert (ended.code, ended.document["reason"]) == (4, "QuorumLost")
    assert (
        "3 of 4 silos answered, quorum is 4; silo-west/west failed: TrainerLost" in ended.document["message"]
    )
    for name in ("north", "east", "south"):
        tasks = {line["task"] for line in lines(ended.workdir, name, "departure")}
        assert f"r00002-train-{name}" in tasks
        assert not tasks & {f"r00002-train.survivors-{name}", f"r00002-train.unmask-{name}"}


@pytest.mark.thorough
def test_statistics_two_sums_and_scores_of_the_silos_are_summed_too(tmp_path: Path) -> None:
    """CCVR after SCAFFOLD, with silos that score the model: the plain job's figures, a simulation's bytes, a replay.

    Of a whole covariance eigenvectors are taken, which a rounding may turn about.
    """

    members = silos(*NAMES)
    for member in members:
        kinds = ["model", "class_means", "class_covariances", "confusion", "feature_statistics"]
        member["spec"]["policy"] = {"payloadKinds": kinds}

    def write_manifest(name: str, **aggregation: bool) -> Path:
        return write(
            tmp_path / f"{name}.yaml",
            members,
            method={"name": "ccvr", "config": {"after": {"name": "scaffold"}, "covariance": "diagonal"}},
            aggregation={"weights": "uniform", **aggregation},
            evaluation={"testDataset": None, "metrics": ["confusion_matrix", "auroc"]},
            aggregator={"datasets": [], "keepUpdates": True},
            data={"validationFraction": 0.2, "preprocessing": {"standardise": True}},
        )

    secure = run(write_manifest("secure", **SECURE_SETTINGS), tmp_path / "secure")
    assert secure.code == 0, secure.err
    plain = run(write_manifest("plain"), tmp_path / "plain", "--in-process")
    for name, array in model(secure).items():
        np.testing.assert_allclose(array, model(plain)[name], atol=1e-5)
    found, expected = secure.history[-1], plain.history[-1]
    assert found["confusion"] == expected["confusion"]
    assert found["metrics"] == pytest.approx(expected["metrics"], abs=1e-6)
    assert found["silos"] == {}
    simulated = run(tmp_path / "secure.yaml", tmp_path / "simulated", "--in-process")
    assert simulated.document["model"]["sha256"] == secure.document["model"]["sha256"]
    assert simulated.history[-1]["metrics"] == found["metrics"]
    assert main(["verify", str(secure.workdir), "--replay"]) == 0


@pytest.mark.thorough
def test_a_model_that_is_sent_with_a_loss_leaves_no_message_in_the_state(tmp_path: Path) -> None:
    manifest = write(
        tmp_path / "lossy.yaml",
        silos(*NAMES[:3]),
        method={"name": "fedavgm"},
        aggregation=SECURE_SETTINGS,
        communication={"download": {"encoding": "int8"}},
        training={"rounds": 1},
    )
    ended = run(manifest, tmp_path / "run")
    assert ended.code == 0, ended.err
    state = json.loads((ended.workdir / "aggregator" / "state.json").read_text())["state"]
    assert state["trees"].keys() == {"model", "velocity"}
    simulated = run(manifest, tmp_path / "simulated", "--in-process")
    assert simulated.document["model"]["sha256"] == ended.document["model"]["sha256"]
