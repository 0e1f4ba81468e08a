"""Hub and institution are upgraded in either order, one minor version apart, while a job of both runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.cluster import institutions
from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import CONTAINERD_SOCKET
from hack.cluster.premises import HUB_NAME
from hack.cluster.runtime import ctr
from hack.images import reference
from tests.cluster.charts.helm import GLOBAL, OPERATOR, SILO, Helm, images
from tests.cluster.charts.release import HELM, release
from tests.cluster.federation import ClusterFederation, federation, run_here, signal
from tests.cluster.institutions import edges
from tests.cluster.institutions.clinic import NAME, Clinic
from tests.cluster.institutions.clinic import clinic as running_clinic
from tests.cluster.institutions.gateway import GatewayAddress
from tests.cluster.institutions.hub import SERVICE, Hub
from tests.cluster.namespace import Namespace

pytestmark = pytest.mark.timeout(900)

NORTH, EAST = "north", "east"
"""The silo in the hub's cluster, and that in a cluster of its own."""

ROUNDS = 6
FIRST_VERSION, SECOND_VERSION = "0.2.0", "0.3.0"
"""Versions to which both go, one after the other."""

SPEC: dict[str, Any] = {
    "training": {
        "rounds": ROUNDS,
        "localEpochs": 100,
    },  # a round takes seconds: some are left after each upgrade
    "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in (NORTH, EAST)]},
    "participation": {"minSilos": 2, "roundDeadline": "10m"},
}


@dataclass(frozen=True)
class Releases:
    """A hub and an institution, each a release of its chart.

    :param objects: the whole federation, as `fedsilo run` takes it.
    :param folder: with the invitation, and for charts.
    """

    hub: Hub
    clinic: Clinic
    objects: ClusterFederation
    folder: Path

    def upgrade_hub(self, version: str) -> None:
        """`helm upgrade` of operator and gateway, and of the silo beside them."""
        chart = self._package_chart(OPERATOR, version)
        resources = {"requests": {"cpu": "60m", "memory": "128Mi"}}
        gateway = self.hub.address.values()
        release("upgrade", chart=chart, **image_values(version), gateway=gateway, resources=resources)
        for name in ("fedsilo-operator", SERVICE):
            runs_version(self.hub.system, name, version)
        policy = self.objects.silo_object(NORTH)["spec"]["policy"]
        self.north("upgrade", chart=self._package_chart(SILO, version), policy=policy | {"maxRounds": 500})

    def north(self, verb: str, chart: Path = SILO, **values: Any) -> None:
        """Install or upgrade the release of the silo in the hub's cluster."""
        silo = self.objects.silo_object(NORTH)
        given = {"global": GLOBAL} | silo["spec"] | values
        HELM.run(verb, NORTH, str(chart), "-n", silo["metadata"]["namespace"], values=given)

    def upgrade_clinic(self, version: str) -> None:
        """`helm upgrade` of the connector."""
        chart, silo = self._package_chart(SILO, version), self.objects.silo_object(EAST)
        roles = {
            role: image for role, image in image_values(version)["images"].items() if role != "aggregator"
        }
        self.clinic.release("upgrade", silo, self.folder / "invitation.yaml", chart=chart, images=roles)
        runs_version(self.east, "fedsilo-connector", version)

    @property
    def east(self) -> Namespace:
        """The silo's namespace in the clinic's cluster."""
        return Namespace(self.clinic.kubectl, self.objects.silo(EAST).name)

    def pods(self) -> set[str]:
        """Identities of the job's pods in both clusters, which have not been started again."""
        places = (*self.objects.namespaces, self.east)
        found = [pod for place in places for pod in place.select("pods", "fedsilo.io/job-name")]
        assert not any(each["restartCount"] for pod in found for each in pod["status"]["containerStatuses"])
        return {pod["metadata"]["uid"] for pod in found}

    def _package_chart(self, chart: Path, version: str) -> Path:
        said = Helm().run(
            *("package", str(chart), "--version", version, "--app-version", version),
            *("--destination", str(self.folder)),
        )
        return Path(said.rsplit(": ", 1)[1].strip())


def image_values(version: str) -> dict[str, Any]:
    """The values of a version's images."""
    named = copy.deepcopy(images())
    for image in named["images"].values():
        image["tag"] = version
    return named


def runs_version(place: Namespace, deployment: str, version: str) -> None:
    """Every pod of a Deployment is of this version."""
    found = place.get("deployment", deployment)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f":{version}")
    assert found["status"]["updatedReplicas"] == found["status"]["readyReplicas"] == found["spec"]["replicas"]


@contextmanager
def version_of_images(version: str, socket: Path) -> Iterator[None]:
    """This tree's images have a further version in a containerd, for as long as the block runs."""
    names = [reference(role) for role in ("operator", "aggregator", "guard", "trainer")]
    further = {name: f"{name.rsplit(':', 1)[0]}:{version}" for name in names}
    for name, other in further.items():
        ctr("images", "tag", "--force", name, other, socket=socket)
    try:
        yield
    finally:
        ctr("images", "rm", *further.values(), socket=socket)


@pytest.fixture(scope="module")
def releases(
    kubectl: Kubectl, released_operator: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Releases]:
    """Both at this version, with a job that is not yet applied."""
    assert institutions.run(NAME, "up") == 0
    hub, clinic = Hub(kubectl, GatewayAddress(HUB_NAME, edges.PORT)), running_clinic()
    folder = tmp_path_factory.mktemp("releases")
    with ExitStack() as stack:
        for socket in (CONTAINERD_SOCKET, clinic.containerd):
            for version in (FIRST_VERSION, SECOND_VERSION):
                stack.enter_context(version_of_images(version, socket))
        kubectl.apply(hub.address.secret())
        release("upgrade", **images(), gateway=hub.address.values())
        service = released_operator.get("service", SERVICE)["spec"]
        gateway = f"{service['clusterIP']}:{service['ports'][0]['port']}"
        stack.enter_context(edges.balancer(folder, gateway, hub.address.certificate()))
        objects = stack.enter_context(federation(kubectl, "fedavg.yaml", **SPEC))
        kubectl.apply(*(item for item in objects.objects if item["kind"] == "Namespace"))
        clinic.clear()
        made = Releases(hub, clinic, objects, folder)
        made.north("install")
        try:
            invitation = hub.invite(objects.silo(EAST), EAST, folder / "invitation.yaml")
            clinic.join(hub, objects.silo_object(EAST), invitation)
            yield made
        except BaseException:
            print(made.east.story())
            raise
        finally:
            clinic.kubectl.run("delete", "namespace", made.east.name, "--ignore-not-found", "--wait")
            clinic.clear()


@pytest.fixture(scope="module")
def expected_digest(releases: Releases, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the model that the federation gives on this machine."""
    ended = run_here(list(releases.objects.objects), tmp_path_factory.mktemp("here"))
    return str(ended["model"]["sha256"])


@pytest.mark.parametrize(
    ("order", "version"),
    [(("hub", "clinic"), FIRST_VERSION), (("clinic", "hub"), SECOND_VERSION)],
    ids=["hub", "institution"],
)
def test_an_upgrade_of_either_first_costs_a_running_job_nothing(
    releases: Releases, expected_digest: str, order: tuple[str, str], version: str
) -> None:
    """From this version to the next, and from that to the one after. They are this tree under further versions: what is
    shown is that another process with other charts and images takes over from one that has a job under way, and that a
    round is held between the two upgrades."""
    job = copy.deepcopy(releases.objects.job)
    job["metadata"]["name"] = f"upgraded-{order[0]}-first"
    others = (item for item in releases.objects.objects if item["kind"] != "FederatedJob")
    running = ClusterFederation(releases.hub.kubectl, (*others, job))
    upgrades = {"hub": releases.upgrade_hub, "clinic": releases.upgrade_clinic}
    north = running.silo(NORTH)

    running.kubectl.apply(job)
    running.round_reached(1)
    trainer = running.pod(north, "trainer")
    pods = releases.pods()
    for each in order:
        signal(north, trainer, "SIGSTOP")  # the job cannot end meanwhile, however fast the machine is
        upgrades[each](version)
        reached = running.status()["round"]
        assert 1 <= reached < ROUNDS
        assert releases.pods() == pods
        signal(north, trainer, "SIGCONT")
        running.round_reached(reached + 1)
    ended = running.wait_complete()
    assert ended["model"]["sha256"] == expected_digest
    assert ended["progress"] == f"{ROUNDS}/{ROUNDS}"
