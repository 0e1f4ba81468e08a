"""Institutions outside of the hub's cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.cluster import institutions
from hack.cluster.kubectl import Kubectl
from hack.cluster.premises import HUB_NAME
from tests.cluster import operator_lock
from tests.cluster.federation import federation
from tests.cluster.institutions import edges
from tests.cluster.institutions.clinic import NAME, Clinic
from tests.cluster.institutions.clinic import clinic as running_clinic
from tests.cluster.institutions.consortium import SPEC, Consortium
from tests.cluster.institutions.gateway import GatewayAddress
from tests.cluster.institutions.hub import hub_with_gateway
from tests.cluster.institutions.lab import laboratory
from tests.cluster.namespace import Namespace


@pytest.fixture(scope="session")
def clinic(kubectl: Kubectl) -> Clinic:
    """The institution's cluster with this tree's images, started unless it is up; `make cluster-down` takes it down."""
    assert institutions.run(NAME, "up") == 0
    return running_clinic()


@pytest.fixture(scope="package")
def consortium(
    kubectl: Kubectl, installed_operator: Namespace, clinic: Clinic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Consortium]:
    """The hub with its gateway, a silo in it, and two institutions that have joined and serve.

    The operator is that of the other workers' tests.
    """
    folder = tmp_path_factory.mktemp("consortium")
    (folder / "lab").mkdir()
    address = GatewayAddress(HUB_NAME, edges.PORT)
    with (
        operator_lock.share_operator(),
        hub_with_gateway(kubectl, address) as hub,
        laboratory(folder / "lab") as lab,
        federation(kubectl, "fedavg.yaml", **SPEC) as objects,
    ):
        clinic.clear()
        made = Consortium(hub, clinic, lab, objects, folder)
        try:
            with hub.serve_gateway(edges.balancer, folder, tls=True):
                made.prepare()
            with lab.serving():
                yield made
        except BaseException:
            print(made.story())
            raise
        finally:
            clinic.kubectl.run("delete", "namespace", made.east.name, "--ignore-not-found", "--wait")
            clinic.clear()
