"""A job with differential privacy whose aggregator sees sums of clipped updates only, on a real cluster, to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.cluster.kubectl import Kubectl
from tests.cluster.federation import ClusterFederation, federation
from tests.cluster.namespace import Namespace

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def private_federation(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """The job of examples/private.yaml with fewer rounds."""
    spec = {"training": {"rounds": 3}}
    with federation(kubectl, "private.yaml", **spec) as made:
        made.apply()
        made.wait_complete()
        yield made


def test_it_ends_with_a_model(private_federation: ClusterFederation) -> None:
    assert private_federation.condition("Complete")["status"] == "True", private_federation.story()
    assert private_federation.status()["round"] == 3


def test_nobody_is_told_what_a_single_silo_holds(private_federation: ClusterFederation) -> None:
    silos = private_federation.status()["silos"]
    assert [silo["name"] for silo in silos] == ["north", "east", "south", "west"]
    assert all("samples" not in silo and silo["lastRound"] == 3 for silo in silos)


def test_no_figure_of_single_examples_is_reported(private_federation: ClusterFederation) -> None:
    assert not private_federation.status().get("training")
