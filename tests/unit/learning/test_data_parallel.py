"""Two processes that share every batch train the model that one process trains."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import distributed, nn

from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP, ProcessGroup, Rendezvous
from tests.unit.learning import ranks

Results = tuple[dict[str, ranks.Result], Mapping[str, np.ndarray], ranks.Trees]


@pytest.fixture(scope="module")
def both_results() -> Iterator[tuple[Results, Results]]:
    """What rank 0, this process, and rank 1 have at their ends."""
    meeting = Rendezvous(2)
    with (
        pytest.MonkeyPatch.context() as patch,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other,
    ):
        patch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        threads = torch.get_num_threads()
        second = other.submit(ranks.train_all, 1, meeting.port, 2)
        first = ranks.train_all(0, meeting.port, 2)
        torch.set_num_threads(threads)
        yield first, second.result(60)


def difference(one: Mapping[str, np.ndarray], two: Mapping[str, np.ndarray]) -> float:
    assert one.keys() == two.keys()
    return max(float(np.abs(one[name] - two[name]).max()) for name in one)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ranks.CASES)
def test_weights_loss_and_optimiser_are_those_of_one_process(
    name: str, both_results: tuple[Results, Results]
) -> None:
    tree, report, kept = ranks.train(name, SINGLE_PROCESS_GROUP)
    shared, told, state = both_results[0][0][name]
    limit = 1e-2 if name == "float16" else 1e-6
    assert difference(tree, shared) < limit
    assert (report.steps, report.examples) == (told.steps, told.examples)
    assert told.loss == pytest.approx(report.loss, abs=limit)
    assert told.first_loss == pytest.approx(report.first_loss, abs=limit)
    for kind, arrays in kept.trees.items():
        assert difference(arrays, state.trees[kind]) < limit * (1e3 if kind == "loss_scale" else 1), kind
    assert kept.steps == state.steps


@pytest.mark.parametrize("name", ranks.CASES)
def test_all_processes_end_with_the_same_bits(name: str, both_results: tuple[Results, Results]) -> None:
    (one, _, kept), (two, _, state) = both_results[0][0][name], both_results[1][0][name]
    assert difference(one, two) == 0
    assert all(difference(kept.trees[kind], state.trees[kind]) == 0 for kind in kept.trees)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_discriminator_that_is_trained_beside_the_model_is_that_of_one_process(
    variant: str, both_results: tuple[Results, Results]
) -> None:
    one, two = both_results[0][2][variant], both_results[1][2][variant]
    assert difference(one, two) == 0
    assert difference(ranks.adversarial(SINGLE_PROCESS_GROUP, variant), one) < 1e-6


@pytest.mark.thorough
def test_running_statistics_are_the_mean_of_all_processes(both_results: tuple[Results, Results]) -> None:
    (_, one, _), (_, two, _) = both_results
    assert difference(one, two) == 0
    assert one["encoder.1.num_batches_tracked"] == 6
    alone = ranks.normalised_tree(SINGLE_PROCESS_GROUP)
    # Means over shares of like size are means over batches; variances of fewer examples are not.
    assert np.abs(one["encoder.1.running_mean"] - alone["encoder.1.running_mean"]).max() < 0.02
    assert np.abs(one["encoder.1.running_var"] - alone["encoder.1.running_var"]).max() > 1e-6


def test_buffers_that_are_the_same_in_all_processes_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of three equal numbers is not always that number."""

    def all_reduce(flat: torch.Tensor) -> None:
        flat.copy_(flat + flat + flat)

    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "broadcast", lambda flat, src: None)
    network = nn.BatchNorm1d(1000)
    assert network.running_mean is not None
    network.running_mean.copy_(torch.rand(1000, generator=torch.Generator().manual_seed(1)))
    network.running_mean[0] = -torch.inf
    before = network.running_mean.clone()
    ProcessGroup(0, 3).average_statistics(network)
    assert torch.equal(network.running_mean, before)


def test_shares_make_up_the_batch() -> None:
    for n in range(1, 12):
        for single in (False, True):
            shares = [ProcessGroup(rank, 4).share(n, single) for rank in range(4)]
            assert [place for share in shares for place in range(n)[share]] == list(range(n))
            sizes = [share.stop - share.start for share in shares]
            assert max(sizes) - min(size for size in sizes if size) <= 1
            if single and n > 1:
                assert 1 not in sizes
    assert SINGLE_PROCESS_GROUP.share(7) == slice(0, 7)


@pytest.mark.thorough
def test_parts_of_a_batch_count_by_what_the_loss_divides_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """With class weights the sum of these, and not the number of examples."""
    monkeypatch.setitem(ranks.CASES, "whole", replace(ranks.CASES["accumulation"], accumulation=1))
    parts, whole = (ranks.train(name, SINGLE_PROCESS_GROUP)[0] for name in ("accumulation", "whole"))
    assert 0 < difference(parts, whole) < 1e-6
