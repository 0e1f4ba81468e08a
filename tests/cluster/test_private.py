"""A job with differential privacy and a rule in place of the mean, on a real cluster, to its end."""

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


def test_what_counted_of_each_silo_is_in_the_status(private: ClusterFederation) -> None:
    kept = {silo["name"]: silo["kept"] for silo in private.status()["silos"]}
    assert kept.keys() == {"north", "east", "south", "west"}
    assert all(0 <= part <= 1 for part in kept.values())


def test_no_figure_of_single_examples_is_reported(private: ClusterFederation) -> None:
    assert not private.status().get("training")
