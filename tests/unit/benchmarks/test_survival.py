"""The survival task of `benchmarks.survival` is Cox's, and its index is Harrell's."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.survival.cox import Concordance, concordance, partial_likelihood
from benchmarks.survival.federation import COVARIATES, REGIONS, STRATEGIES, concordance_of


def test_the_partial_likelihood_compares_an_event_with_who_was_at_risk() -> None:
    outputs = torch.tensor([[0.5], [-1.0], [2.0]])
    targets = torch.tensor(
        [[1.0, 10.0], [0.0, 20.0], [1.0, 5.0]]
    )  # the third died first, the second was censored
    hazards = outputs[:, 0].exp()
    died = torch.log(hazards[:2].sum()) - 0.5, torch.log(hazards.sum()) - 2.0
    expected = torch.stack([died[0], torch.tensor(0.0), died[1]])
    assert torch.allclose(partial_likelihood(outputs, targets), expected), "in the patients' order"


def test_large_hazards_do_not_overflow() -> None:
    outputs = torch.tensor([[200.0], [100.0]])
    assert partial_likelihood(outputs, torch.tensor([[1.0, 1.0], [1.0, 2.0]])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("hazards", "events", "days", "index"),
    [
        ([3, 2, 1], [1, 1, 1], [1, 2, 3], 1.0),
        ([1, 2, 3], [1, 1, 1], [1, 2, 3], 0.0),
        ([1, 1, 1], [1, 1, 1], [1, 2, 3], 0.5),
        ([3, 2, 1], [0, 1, 1], [1, 2, 3], 1.0),  # who left first can be compared with nobody
        ([1, 2], [1, 0], [5, 5], 0.0),  # who lived on beyond the day of an event
        ([1, 2, 3], [1, 1, 0], [5, 5, 6], 0.0),  # two events on one day say nothing of each other
    ],
)
def test_the_index_counts_pairs_that_can_be_compared(
    hazards: list[int], events: list[int], days: list[int], index: float
) -> None:
    arrays = (np.array(values, float) for values in (hazards, events, days))
    assert concordance(*arrays) == index


def test_batches_of_predictions_are_scored_together() -> None:
    metric = Concordance()
    for hazard, day in ((2.0, 1.0), (1.0, 2.0)):
        metric.update(torch.tensor([[hazard]]), torch.tensor([[1.0, day]]))
    assert metric.compute() == 1.0


@pytest.mark.thorough
def test_a_federation_of_regions_learns_who_is_at_risk(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = tmp_path / "patients.csv"
    names = [f"x{place}" for place in range(COVARIATES)]
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["region", "fold", *names, "event", "days"])
        for region in REGIONS:
            for place in range(60):
                row = rng.normal(size=COVARIATES).round(3)
                days = rng.exponential(np.exp(-2 * row[0])) * 1000
                writer.writerow([region, "test" if place < 12 else "train", *row, 1, round(days, 1)])
    assert concordance_of(STRATEGIES["fedavg"], 42, table) > 0.7
