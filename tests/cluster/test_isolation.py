"""What the pods of a running federation can reach, read and do; what they cannot is tried from inside them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from hack.images import TOOLBOX, reference
from tests.cluster import outside
from tests.cluster.federation import ClusterFederation, federation, signal
from tests.cluster.namespace import Namespace, pod, wait_until
from tests.cluster.reach import Destination, api_servers, listening, name_servers, reached_destinations

pytestmark = pytest.mark.timeout(900)

ENDLESS_COMMAND = ("sleep", "infinity")
COMPONENT, JOB_UID = "app.kubernetes.io/component", "fedsilo.io/job-uid"
VOLUME = "/var/lib/fedsilo"
KEY = "/run/secrets/fedsilo"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"

MOUNTS = {
    "trainer": {
        "/": "ro",
        "/data/digits": "ro",
        "/etc/fedsilo": "ro",
        "/tmp": "rw",
        f"{VOLUME}/drop": "rw",
        f"{VOLUME}/inbox": "ro",
        f"{VOLUME}/state": "rw",
    },
    "guard": {
        "/": "ro",
        "/etc/fedsilo": "ro",
        "/etc/fedsilo-policy": "ro",
        KEY: "ro",
        "/tmp": "rw",
        f"{VOLUME}/audit": "rw",
        f"{VOLUME}/drop": "rw",
        f"{VOLUME}/guard": "rw",
        f"{VOLUME}/inbox": "rw",
    },
    "aggregator": {
        "/": "ro",
        "/etc/fedsilo": "ro",
        KEY: "ro",
        TOKEN.removeprefix("/var"): "ro",
        "/tmp": "rw",
        VOLUME: "rw",
    },
}
"""Mounts of each role, apart from those that every container has."""

COMMON_PATHS = ("/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")


@dataclass(frozen=True)
class HaltedFederation:
    """A federation in its second round, halted, and what its pods could try to reach.

    :param pods: name by role: of the aggregator, and of the agent of the first silo.
    :param protected: what only some pods of the federation may reach.
    :param open: what every pod may reach that no policy selects.
    """

    federation: ClusterFederation
    silo: Namespace
    pods: dict[str, str]
    protected: dict[str, Destination]
    open: dict[str, Destination]

    def story(self) -> str:
        """What a person would look at after a failure."""
        return self.federation.story()

    def place(self, role: str) -> Namespace:
        """Namespace of a role's pod."""
        return self.federation.home if role == "aggregator" else self.silo

    def look(self, role: str, script: str) -> Any:
        """What a Python script prints in a role's pod, as JSON."""
        return json.loads(self.place(role).execute(self.pods[role], "python3", "-c", script))


@pytest.fixture(scope="module")
def halted_federation(kubectl: Kubectl, operator: Namespace) -> Iterator[HaltedFederation]:
    refs = [{"namespace": f"silo-{name}", "name": name} for name in ("north", "east")]
    spec: dict[str, Any] = {
        "training": {"rounds": 100},
        "silos": {"refs": refs},
        "participation": {"minSilos": 2, "roundDeadline": "1h"},
    }
    with ExitStack() as stack:
        running = stack.enter_context(federation(kubectl, "fedavg.yaml", **spec))
        silo, other = running.silo("north"), running.silo("east")
        for item in running.objects:
            if item["kind"] == "Silo":
                item["spec"]["datasets"][0]["volume"] = {"persistentVolumeClaim": "digits"}
        running.apply()
        for namespace in (silo, other):
            namespace.apply(CLAIM)
        other.apply(pod("server", TOOLBOX, ENDLESS_COMMAND))
        silo.apply(pod("open", TOOLBOX, ENDLESS_COMMAND))
        pods = {role: running.pod(silo, role) for role in ("trainer", "guard")}
        silo.apply(unguarded_pod(silo, pods["trainer"]))
        running.round_reached(1)
        pods["aggregator"] = running.pod(running.home, "aggregator")
        for namespace in (silo, other):
            # What is looked at does not move, and the machine is free for who looks.
            signal(namespace, running.pod(namespace, "trainer"), "SIGSTOP")
        other.wait("pod", "server", "condition=Ready")
        silo.wait("pod", "open", "condition=Ready")
        stack.enter_context(outside.outside_host())
        service = running.home.select("services", f"{COMPONENT}=aggregator")[0]["spec"]
        aggregator = running.home.get("pod", pods["aggregator"])["status"]["podIP"]
        protected = {
            "the aggregator's Service": Destination(service["clusterIP"], 8443),
            "the aggregator's pod": Destination(aggregator, 8443),
            "the guard": stack.enter_context(listening(silo, pods["guard"])),
            "the trainer": stack.enter_context(listening(silo, pods["trainer"])),
        }
        open_places = {
            **api_servers(kubectl),
            **name_servers(kubectl),
            "a pod of another silo": stack.enter_context(listening(other, "server")),
            "the outside": Destination(outside.ADDRESS, outside.PORT),
        }
        yield HaltedFederation(running, silo, pods, protected, open_places)


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "digits"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


def unguarded_pod(silo: Namespace, trainer: str) -> Object:
    """The trainer's pod once more, without the labels by which network policies select it, on a volume of its own."""
    spec = copy.deepcopy(silo.get("pod", trainer)["spec"])
    for volume in spec["volumes"]:
        if volume["name"] == "volume":
            del volume["persistentVolumeClaim"]
            volume["emptyDir"] = {}
    for field in ("nodeName", "affinity"):
        del spec[field]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "unguarded"}, "spec": spec}


# Every file outside of the image that holds a private key, and every process that was given one.
FIND_KEYS = """
import json, os
MARK = b"PRIVATE " + b"KEY"
paths = [f"/proc/{number}/environ" for number in os.listdir("/proc") if number.isdigit()]
for top in ("/etc/fedsilo", "/run", "/tmp", "/var", "/data", "/home", "/root", "/dev/shm"):
    paths += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
def holds(path):
    try:
        with open(path, "rb") as file:
            return MARK in file.read()
    except OSError:
        return False
print(json.dumps([path for path in paths if os.path.exists(path) and not os.path.isdir(path) and holds(path)]))
"""


def test_a_pod_without_policies_reaches_everything_but_the_federation(
    halted_federation: HaltedFederation,
) -> None:
    assert reached_destinations(
        halted_federation.silo, "open", halted_federation.open | halted_federation.protected
    ) == set(halted_federation.open)


def test_the_trainer_reaches_nothing(halted_federation: HaltedFederation) -> None:
    places = halted_federation.open | halted_federation.protected
    del places["the trainer"]
    assert reached_destinations(halted_federation.silo, halted_federation.pods["trainer"], places) == set()


def test_the_guard_reaches_the_aggregator_and_nothing_else(halted_federation: HaltedFederation) -> None:
    places = halted_federation.open | halted_federation.protected
    del places["the guard"]
    aggregator = {"the aggregator's Service", "the aggregator's pod"}
    assert reached_destinations(halted_federation.silo, halted_federation.pods["guard"], places) == aggregator


def test_the_aggregator_reaches_the_api_server_and_no_agent(halted_federation: HaltedFederation) -> None:
    places = halted_federation.open | {
        name: halted_federation.protected[name] for name in ("the guard", "the trainer")
    }
    assert reached_destinations(
        halted_federation.federation.home, halted_federation.pods["aggregator"], places
    ) == set(api_servers(halted_federation.silo.kubectl))


def test_the_aggregator_is_reached_by_guards_of_its_job_only(halted_federation: HaltedFederation) -> None:
    home, uid = (
        halted_federation.federation.home,
        halted_federation.federation.observed_job()["metadata"]["uid"],
    )
    callers = {
        "its-guard": {COMPONENT: "guard", JOB_UID: uid},
        "guard-of-another-job": {COMPONENT: "guard", JOB_UID: "0b1c2d3e-0000-4000-8000-000000000001"},
        "trainer-of-its-job": {COMPONENT: "trainer", JOB_UID: uid},
        "neighbour": {},
    }
    home.apply(*(pod(name, TOOLBOX, ENDLESS_COMMAND, labels=labels) for name, labels in callers.items()))
    aggregator = {name: place for name, place in halted_federation.protected.items() if "aggregator" in name}
    for name in callers:
        home.wait("pod", name, "condition=Ready")
    wait_until(
        lambda: reached_destinations(home, "its-guard", aggregator) == set(aggregator), "the way for a guard"
    )
    for name in list(callers)[1:]:
        assert reached_destinations(home, name, aggregator) == set(), name


@pytest.mark.parametrize("role", MOUNTS)
def test_a_process_has_no_rights_on_its_node(halted_federation: HaltedFederation, role: str) -> None:
    read = "print(json.dumps([line.split() for line in open('/proc/1/status')]))"
    status = {name: values for name, *values in halted_federation.look(role, f"import json; {read}")}
    assert status["Uid:"] == status["Gid:"] == ["65532"] * 4
    assert status["Groups:"] == ["65532"]
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert int(status[f"Cap{kind}:"][0], 16) == 0, kind
    assert status["NoNewPrivs:"] == ["1"]
    assert status["Seccomp:"] == ["2"]


@pytest.mark.parametrize("role", MOUNTS)
def test_a_process_sees_the_volumes_of_its_role_and_no_other(
    halted_federation: HaltedFederation, role: str
) -> None:
    read = "[line.split()[4:6] for line in open('/proc/1/mountinfo')]"
    mounts = dict(halted_federation.look(role, f"import json; print(json.dumps({read}))"))
    shown = {
        path: options.split(",")[0]
        for path, options in mounts.items()
        if not any(PurePosixPath(path).is_relative_to(place) for place in COMMON_PATHS)
    }
    assert shown == MOUNTS[role]


@pytest.mark.parametrize("role", MOUNTS)
def test_a_process_writes_to_its_volumes_only(halted_federation: HaltedFederation, role: str) -> None:
    """Also not where a mount is writable but its files are others'."""
    places = {*MOUNTS[role], *COMMON_PATHS, VOLUME, "/opt/fedsilo", "/home", "/root", "/var"}
    script = f"""
import json, os
def written(place):
    path = os.path.join(place, "written") if os.path.isdir(place) else place
    try:
        open(path, "a").close()
        if path != place:
            os.unlink(path)
    except OSError:
        return False
    return True
print(json.dumps([place for place in {sorted(places)} if written(place)]))
"""
    writable = {path for path, mode in MOUNTS[role].items() if mode == "rw"}
    assert set(halted_federation.look(role, script)) == writable


def test_the_key_is_with_the_guard_and_nowhere_in_the_trainer(halted_federation: HaltedFederation) -> None:
    assert f"{KEY}/key.pem" in halted_federation.look("guard", FIND_KEYS)
    assert halted_federation.look("trainer", FIND_KEYS) == []


def test_the_trainer_sees_no_process_of_the_guards(halted_federation: HaltedFederation) -> None:
    read = (
        "[open(f'/proc/{number}/comm').read().strip() for number in os.listdir('/proc') if number.isdigit()]"
    )
    programs = halted_federation.look("trainer", f"import os, json; print(json.dumps({read}))")
    assert "fedsilo-trainer" in programs
    assert "fedsilo-guard" not in programs


def test_guard_and_trainer_have_no_token(halted_federation: HaltedFederation) -> None:
    for role in ("guard", "trainer"):
        spec = halted_federation.silo.get("pod", halted_federation.pods[role])["spec"]
        assert spec["serviceAccountName"] == "default"
        assert spec["automountServiceAccountToken"] is False
        assert not any("projected" in volume for volume in spec["volumes"])
        looked = f"import os, json; print(json.dumps(os.path.exists('{TOKEN}')))"
        assert halted_federation.look(role, looked) is False


def test_the_trainers_network_was_seen_to_be_closed_from_the_guards_image(
    halted_federation: HaltedFederation,
) -> None:
    status = halted_federation.silo.get("pod", halted_federation.pods["trainer"])["status"]
    (look,) = status["initContainerStatuses"]
    assert look["image"] == reference("guard")
    assert look["state"]["terminated"]["exitCode"] == 0
    log = halted_federation.silo.run("logs", halted_federation.pods["trainer"], "--container", "isolation")
    assert "the network is closed: no answer from " in log
    for name in ("the API server's Service", "DNS over TCP", "DNS over UDP"):
        assert f"{halted_federation.open[name].host}:{halted_federation.open[name].port} (" in log


def test_a_trainer_whose_network_stays_open_never_begins(halted_federation: HaltedFederation) -> None:
    """The last test of this file: it started with the others, and a minute of patience is over by now."""
    halted_federation.silo.wait("pod", "unguarded", "jsonpath={.status.phase}=Failed")
    status = halted_federation.silo.get("pod", "unguarded")["status"]
    (look,) = status["initContainerStatuses"]
    ended = look["state"]["terminated"]
    assert ended["exitCode"] == 5
    said = json.loads(ended["message"])
    assert said["reason"] == "PolicyRefused"
    assert (
        "can be reached 60 s after the start although the trainer's NetworkPolicy forbids it"
        in said["message"]
    )
    (trainer,) = status["containerStatuses"]
    assert trainer["state"]["waiting"]["reason"] == "PodInitializing"
