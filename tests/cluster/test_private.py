"""A job with differential privacy whose aggregator sees sums of clipped updates only, on a real cluster, to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.cluster.kubectl import Kubectl
from tests.cluster.federation import ClusterFederation, federation
from tests.cluster.namespace import Namespace

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def private(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """The job of examples/private.yaml with fewer rounds."""
    spec = {"training": {"rounds": 3}}
    with federation(kubectl, "private.yaml", **spec) as made:
        made.apply()
        made.ended()
        yield made


def test_it_ends_with_a_model(private: ClusterFederation) -> None:
    assert private.condition("Complete")["status"] == "True", private.story()
    assert private.status()["round"] == 3


def test_nobody_is_told_what_a_single_silo_holds(private: ClusterFederation) -> None:
    silos = private.status()["silos"]
    assert [silo["name"] for silo in silos] == ["north", "east", "south", "west"]
    assert all("samples" not in silo and silo["lastRound"] == 3 for silo in silos)


def test_no_figure_of_single_examples_is_reported(private: ClusterFederation) -> None:
    assert not private.status().get("training")
