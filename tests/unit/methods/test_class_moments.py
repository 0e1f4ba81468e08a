"""Moments of a silo's classes come by one verb, which alone knows whether the job asks for noise."""

from __future__ import annotations

from pathlib import Path

import grimp
import numpy as np
import pytest

from fedsilo.methods.components.class_moments import reply_of_moments, spread_of
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.moments import OneClassMoments, Spread, SpreadKind
from fedsilo.silo.context import LocalContext
from tests.federate import job_spec, runners, skewed_silos

TASK = SiloTask("statistics", "calibration", 1, 1, 1, {}, {})
FEATURES = np.random.default_rng(0).normal(0, 1, (36, 5))
PRIVACY_SPEC = {"unit": "example", "noiseMultiplier": 1e-6, "delta": 1e-3, "maxFeatureNorm": 100.0}


def silo_of(tmp_path: Path, least: int = 1, private: object = None) -> LocalContext:
    privacy = {"differentialPrivacy": private, "minSamplesPerClass": least}
    spec = job_spec("ccvr", ["a"], training={"batchSize": 6}, privacy=privacy)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1, 3]}), tmp_path).values()
    return runner.context


def test_who_knows_of_noise_in_training_and_statistics_is_listed() -> None:
    graph = grimp.build_graph("fedsilo")
    found = graph.find_modules_that_directly_import("fedsilo.methods.components.private_steps")
    blocks = "fedsilo.methods.components"
    assert found == {f"{blocks}.class_moments", f"{blocks}.local", "fedsilo.silo.runner"}


@pytest.mark.parametrize("kind", ["covariance", "moment"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_with_next_to_no_noise_they_are_those_without(
    tmp_path: Path, kind: SpreadKind, diagonal: bool
) -> None:
    spread = Spread(kind, diagonal)
    exact = silo_of(tmp_path).class_moments(TASK, FEATURES, spread)
    noised = silo_of(tmp_path, private=PRIVACY_SPEC).class_moments(TASK, FEATURES, spread)
    assert exact.of.keys() == noised.of.keys() == {0, 1, 3}
    for label, moments in exact.of.items():
        members = FEATURES[silo_of(tmp_path).train.labels.numpy() == label]
        assert moments.count == noised.of[label].count == len(members)
        assert moments.mean == pytest.approx(members.mean(axis=0))
        assert moments.spread == pytest.approx(spread_of(members, spread))
        assert noised.of[label].mean == pytest.approx(moments.mean, abs=1e-3)
        assert noised.of[label].spread == pytest.approx(moments.spread, abs=0.05)


def test_a_reply_says_what_is_behind_each_block_and_what_has_noise(tmp_path: Path) -> None:
    def blocks(of: OneClassMoments) -> dict[str, np.ndarray]:
        return {"count": np.array(of.count), "mean": of.mean}

    exact = reply_of_moments(silo_of(tmp_path).class_moments(TASK, FEATURES), blocks)
    private = silo_of(tmp_path, private=PRIVACY_SPEC).class_moments(TASK, FEATURES)
    noised = reply_of_moments(private, blocks)
    assert set(exact.tensors) == {f"{name}/{label}" for name in ("count", "mean") for label in (0, 1, 3)}
    assert exact.support == noised.support == dict.fromkeys(exact.tensors, 12)
    assert (exact.mechanisms, exact.noised) == ((), frozenset())
    assert [(each.sampling, each.times) for each in noised.mechanisms] == [(1.0, 1)]
    assert noised.noised == set(noised.tensors)


@pytest.mark.parametrize("private", [None, PRIVACY_SPEC])
def test_classes_below_the_minimum_are_left_out(tmp_path: Path, private: object) -> None:
    assert not silo_of(tmp_path, 13, private).class_moments(TASK).of
    assert {
        label: of.count for label, of in silo_of(tmp_path, 12, private).class_moments(TASK).of.items()
    } == {
        0: 12,
        1: 12,
        3: 12,
    }
