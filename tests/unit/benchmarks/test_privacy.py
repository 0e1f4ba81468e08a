"""The attacks of `benchmarks.privacy`: each against a case whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.privacy import accuracy, campaign, epsilons, inversion, membership
from benchmarks.privacy.federation import ExchangeView, load, members
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import uncovered_payloads
from tests.federate import bound_method


def test_the_success_of_perfect_and_of_useless_scores() -> None:
    truth = np.arange(1000) % 2 == 0
    perfect = membership.success(truth.astype(float), truth)
    useless = membership.success(np.random.default_rng(0).normal(size=1000), truth)
    assert (perfect.auc, perfect.true_positives) == (1.0, 1.0)
    assert useless.auc == pytest.approx(0.5, abs=0.05)
    assert useless.true_positives < 0.05


def test_likelihood_ratios_find_what_a_common_threshold_cannot() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random((16, 200)) < 0.5
    # How hard an example is differs by far more than membership adds.
    scores = rng.normal(0, 10, 200) + truth + rng.normal(0, 0.3, truth.shape)
    assert membership.success(scores, truth).auc < 0.6
    assert membership.success(membership.likelihood_ratios(scores, truth), truth).auc > 0.95


def test_a_step_of_one_image_gives_the_image() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    image = torch.rand(1, 1, 8, 8)
    before = {name: value.detach().numpy().copy() for name, value in network.named_parameters()}
    loss = nn.functional.cross_entropy(network(image), torch.tensor([3]))
    torch.autograd.backward(loss)
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    after = {name: value.detach().numpy() for name, value in network.named_parameters()}
    found = inversion.of_update(before, after, (1, 8, 8))
    assert inversion.recovery_decibels(found, image.numpy())[0] > 40


def test_no_image_counts_for_two_originals() -> None:
    originals = np.stack([np.zeros((1, 2, 2)), np.zeros((1, 2, 2))])
    found = inversion.recovery_decibels(originals[:1], originals)
    assert sorted(np.isfinite(found)) == [False, True]


def test_what_a_sum_leaves_is_the_average_by_samples() -> None:
    updates = {silo: {"model": {"w": np.full(2, value)}} for silo, value in (("a", 1.0), ("b", 5.0))}
    assert ExchangeView({}, updates, {"a": 3, "b": 1}).mean("model")["w"] == pytest.approx(np.full(2, 2.0))


def test_the_victim_has_another_half_in_every_run() -> None:
    first, second = members(0, 400), members(1, 400)
    assert first.sum() == second.sum() == 200
    assert (first != second).any()
    images, labels = load("digits", "", "s0", 0, 400)
    assert images.shape == (200, 1, 8, 8)
    assert len(labels) == 200


@pytest.mark.thorough
def test_a_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [campaign.Cell("digits", method, None, 3) for method in ("fedavg", "fedavg inversion")]
    monkeypatch.setattr(campaign, "cells", lambda *_: iter(cells))
    path = tmp_path / "privacy.jsonl"
    campaign.campaign("digits", 3, tmp_path, path)
    lines = campaign.read(path)
    campaign.campaign("digits", 3, tmp_path, path)
    assert campaign.read(path) == lines
    assert {line["attack"] for line in lines} == {"threshold", "likelihood ratio", "inversion"}
    inverted = {line["view"]: line for line in lines if line["attack"] == "inversion"}
    assert inverted["update"]["recognised"] > inverted["sum"]["recognised"]


def test_accuracies_are_averaged_over_the_seeds_that_are_there() -> None:
    lines = [
        {"dataset": "digits", "method": "fedavg", "epsilon": 3.0, "seed": seed, "accuracy": found}
        for seed, found in ((1, 0.8), (2, 0.9))
    ]
    text = accuracy.table(lines)
    assert "| digits | fedavg | not run | not run | 85.0 ± 7.1 (2 of 3 seeds) | not run |" in text


def test_there_is_a_configuration_of_every_method_with_mechanisms() -> None:
    """feddf and fedbe, whose aggregator learns from a public dataset, have fedavg's silos."""
    names = {configuration.method for configuration in epsilons.CONFIGURATIONS}
    assert len(epsilons.CONFIGURATIONS) >= 10
    for name in registry.names():
        method = bound_method(name)
        if method.training.mechanisms and not uncovered_payloads(method) and method.models.personal is None:
            assert name in names | {"feddf", "fedbe"}, name


@pytest.mark.thorough
def test_what_a_job_states_is_what_its_draws_come_to() -> None:
    """The form whose last stage takes three steps where the job says one."""
    (configuration,) = (
        each
        for each in epsilons.CONFIGURATIONS
        if each.config == epsilons.RELEASED_STAGES and "localSteps" in each.training
    )
    found = list(epsilons.measure(replace(configuration, records=(120, 60))))
    assert [each.records for each in found] == [120, 60]
    assert all(abs(each.difference) < 1e-3 for each in found)
    # One step in each of two rounds, three in each of three.
    assert found[0].releases == "11 x 0.167, 1 x 1"
    assert "| fedconcat variant released: batchSize 20, localSteps 1 | 0.001 | 120 |" in epsilons.table(found)
