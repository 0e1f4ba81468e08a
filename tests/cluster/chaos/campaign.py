"""Jobs of three kinds run side by side on the test cluster, while its parts are killed, drained and taken away.

    python -m tests.cluster.chaos.campaign --disturbances 60 --seed 7

Each model has to be, bit for bit, the one of `fedsilo run` on this machine. `make cluster-up images` comes first,
and nothing else uses the cluster meanwhile.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from fedsilo.api.observed import Object
from hack import operator as installation
from hack.cluster import processes
from hack.cluster.errors import ClusterError
from hack.cluster.kubectl import Kubectl, KubectlError
from hack.cluster.paths import KUBECONFIG, LOGS, OWNER
from tests.cluster.federation import END_SECONDS, ClusterFederation, federation, run_here, signal
from tests.cluster.namespace import Namespace, wait_until

KINDS: dict[str, dict[str, Any]] = {
    "averages": {"method": {"name": "fedavg"}},
    "secure sums": {"method": {"name": "fedavg"}, "aggregation": {"secure": True}},
    "private state": {"method": {"name": "fedphp"}},
}
POLICY = {"methods": ["fedavg", "fedphp"], "payloadKinds": ["model", "class_counts"]}
SILOS = ("north", "east", "south")
SPEC: dict[str, Any] = {
    "training": {"rounds": 30, "localEpochs": 5, "batchSize": 16},
    "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in SILOS]},
    # Nobody may be missing in a round, or the model would be another one; each may be killed as often as it comes.
    "participation": {"minSilos": len(SILOS), "roundDeadline": "30m"},
    "backoffLimit": 1000,
}
COMPONENTS = ("kubelet", "containerd", "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")

UNREACHABLE = (KubectlError, ClusterError, HTTPError, ApiException)
"""What an API server or a pod that is just gone answers."""

Disturb = Callable[["Campaign"], str]


@dataclass
class Campaign:
    """Jobs under way, and who disturbs them."""

    kubectl: Kubectl
    places: ClusterFederation
    random: Random
    jobs: dict[str, Object]

    @property
    def namespaces(self) -> list[Namespace]:
        """Where the jobs have pods."""
        return [self.places.home, *(self.places.silo(name) for name in SILOS)]

    def running_pod(self) -> tuple[Namespace, str] | None:
        """Any pod of the jobs that runs."""
        found = [
            (place, pod["metadata"]["name"])
            for place in self.namespaces
            for pod in place.select("pods")
            if pod["status"].get("phase") == "Running"
        ]
        return self.random.choice(found) if found else None

    def is_over(self) -> bool:
        """Whether all jobs have ended."""
        return all(_status(self.places, job).get("completionTime") for job in self.jobs.values())


def _status(places: ClusterFederation, job: Object) -> Object:
    return dict(places.home.get("federatedjob", job["metadata"]["name"]).get("status") or {})


def _kill_process(campaign: Campaign) -> str:
    pod = campaign.running_pod()
    if pod is not None:
        signal(*pod, "SIGKILL")
    return "process of a pod killed"


def _delete_pod(campaign: Campaign) -> str:
    pod = campaign.running_pod()
    if pod is not None:
        pod[0].run("delete", "pod", pod[1], "--wait=false")
    return "pod deleted"


def _kill_component(component: str, campaign: Campaign) -> str:
    """Kill a process of the cluster, and start it again as it was after up to ten seconds."""
    owner = f"{OWNER}/{component}"
    (leader,) = (process for process in processes.running(owner) if process.leader)
    folder = Path("/proc", str(leader.pid))
    command = [part.decode() for part in (folder / "cmdline").read_bytes().split(b"\0") if part]
    variables = (part.decode().partition("=") for part in (folder / "environ").read_bytes().split(b"\0"))
    environment = {name: value for name, _, value in variables if name}
    processes.kill_until_gone(
        lambda: [each.pid for each in processes.running(owner) if each.leader], component
    )
    time.sleep(campaign.random.uniform(0, 10))
    processes.start(owner, command, LOGS / f"{component}.log", environment)
    return f"{component} killed"


def _drain(campaign: Campaign) -> str:
    """Cordon the node and ask for evictions, as a drain does, for up to twenty seconds."""
    (node,) = campaign.kubectl.get("nodes")["items"]
    name, seconds = node["metadata"]["name"], campaign.random.randint(5, 20)
    try:
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={seconds}s")
        campaign.kubectl.run("drain", name, "--pod-selector=fedsilo.io/job-name", *options)
    except KubectlError:
        pass  # One part at a time: the node is not empty when the time is over.
    finally:
        campaign.kubectl.run("uncordon", name)
    return "node drained"


def _stop_operator(campaign: Campaign) -> str:
    """No operator for up to twenty seconds."""
    system = Namespace(campaign.kubectl, installation.NAMESPACE)
    system.run("scale", "deployment/fedsilo-operator", "--replicas=0")
    time.sleep(campaign.random.uniform(5, 20))
    system.run("scale", "deployment/fedsilo-operator", "--replicas=2")
    return "operator away"


def _reinstall_operator(campaign: Campaign) -> str:
    system = Namespace(campaign.kubectl, installation.NAMESPACE)
    system.delete("deployment", "fedsilo-operator")
    installation.install(campaign.kubectl)
    return "operator installed again"


DISTURBANCES: tuple[Disturb, ...] = (
    *(_kill_process, _kill_process, _delete_pod, _delete_pod, _drain, _stop_operator, _reinstall_operator),
    *(partial(_kill_component, component) for component in COMPONENTS),
)


def _disturb(campaign: Campaign, count: int) -> Iterator[str]:
    """Disturb the jobs until all are over, or so often; what happened, one after the other."""
    for _ in range(count):
        time.sleep(campaign.random.uniform(0, 6))
        try:
            if campaign.is_over():
                return
            yield campaign.random.choice(DISTURBANCES)(campaign)
        except UNREACHABLE as failed:
            yield f"could not ask: {str(failed)[:80]}"  # the API server is just starting, or the pod just gone


def _manifest(places: ClusterFederation, spec: dict[str, Any]) -> Object:
    job = copy.deepcopy(places.job)
    job["metadata"]["name"] = f"chaos-{uuid.uuid4().hex[:6]}"
    job["spec"] |= copy.deepcopy(spec)
    return job


def _silo_objects(places: ClusterFederation) -> list[Object]:
    return [item for item in places.objects if item["kind"] != "FederatedJob"]


def _expected_digest(places: ClusterFederation, spec: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return str(
            run_here([*_silo_objects(places), _manifest(places, spec)], Path(folder))["model"]["sha256"]
        )


def _await_end(places: ClusterFederation, job: Object) -> Object:
    def end_status() -> Object | None:
        try:
            status = _status(places, job)
        except UNREACHABLE:
            return None
        return status if status.get("completionTime") else None

    return wait_until(end_status, f"the end of {job['metadata']['name']}", 2 * END_SECONDS)


def _wave(campaign: Campaign, expected: dict[str, str], count: int) -> tuple[Counter[str], int]:
    """One job of each kind under disturbances; these, and how many models are as they should be."""
    kubectl, places = campaign.kubectl, campaign.places
    kubectl.apply(*campaign.jobs.values())
    wait_until(lambda: places.home.select("pods"), "pods", END_SECONDS)
    happened: Counter[str] = Counter()
    for what in _disturb(campaign, count):
        print(f"{time.strftime('%X')} {what}", flush=True)
        happened[what] += 1
    right = 0
    for kind, job in campaign.jobs.items():
        status = _await_end(places, job)
        same = (status.get("model") or {}).get("sha256") == expected[kind]
        right += same
        print(f"{kind}: {status['phase']}, {'same bytes' if same else status}", flush=True)
        places.home.delete("federatedjob", job["metadata"]["name"])
    return happened, right


def main() -> int:
    """Run jobs of three kinds in chaos; 1 when a model is another, or a job fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--disturbances", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    kubectl, happened = Kubectl(KUBECONFIG), Counter[str]()
    installation.install(kubectl)
    models = right = 0
    with federation(kubectl, "fedavg.yaml", **SPEC) as places:
        for item in places.objects:
            if item["kind"] == "Silo":
                item["spec"]["policy"] |= POLICY
        kubectl.apply(*_silo_objects(places))
        expected = {kind: _expected_digest(places, spec) for kind, spec in KINDS.items()}
        random = Random(args.seed)
        while (left := args.disturbances - sum(happened.values())) > 0:
            jobs = {kind: _manifest(places, spec) for kind, spec in KINDS.items()}
            found, same = _wave(Campaign(kubectl, places, random, jobs), expected, left)
            happened += found
            models, right = models + len(jobs), right + same
    for what, count in sorted(happened.items()):
        print(f"| {what} | {count} |")
    print(f"seed {args.seed}: {right} of {models} models have the same bytes")
    return 0 if right == models else 1


if __name__ == "__main__":
    sys.exit(main())
