"""Institutions outside of the hub's cluster."""

from __future__ import annotations

import pytest

from hack.cluster import institutions
from hack.cluster.kubectl import Kubectl
from tests.cluster.institutions.clinic import NAME, Clinic
from tests.cluster.institutions.clinic import clinic as place


@pytest.fixture(scope="session")
def clinic(kubectl: Kubectl) -> Clinic:
    """The institution's cluster with this tree's images, started unless it is up; `make cluster-down` takes it down."""
    assert institutions.run(NAME, "up") == 0
    return place()
