"""Pod Security and volumes of the test cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.cluster import runtime
from hack.cluster.archive import write_image
from hack.cluster.binaries import programs
from hack.cluster.kubectl import Kubectl, KubectlError
from hack.images import TOOLBOX
from tests.cluster.namespace import Namespace, pod, wait_until
from tests.cluster.test_workloads import ENDLESS_COMMAND
from tests.pages import runs
from tests.terminal import Terminal


def test_a_restricted_namespace_refuses_root(namespace: Namespace) -> None:
    root = pod("root", TOOLBOX, ENDLESS_COMMAND)
    root["spec"]["securityContext"] = {"seccompProfile": {"type": "RuntimeDefault"}}
    with pytest.raises(KubectlError, match=r'violates PodSecurity "restricted:latest": runAsNonRoot != true'):
        namespace.apply(root)


def test_a_volume_survives_its_pod(namespace: Namespace) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    namespace.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kept"}, "spec": spec}
    )
    volumes = {"/kept": {"persistentVolumeClaim": {"claimName": "kept"}}}
    namespace.apply(pod("writer", TOOLBOX, ("sh", "-c", "echo round 7 > /kept/state"), volumes=volumes))
    namespace.wait("pod", "writer", "jsonpath={.status.phase}=Succeeded")
    namespace.delete("pod", "writer")
    namespace.apply(pod("reader", TOOLBOX, ("cat", "/kept/state"), volumes=volumes))
    namespace.wait("pod", "reader", "jsonpath={.status.phase}=Succeeded")
    assert namespace.logs("reader") == "round 7\n"


def test_a_volume_goes_with_its_claim(namespace: Namespace, kubectl: Kubectl) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    namespace.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "gone"}, "spec": spec}
    )
    volumes = {"/gone": {"persistentVolumeClaim": {"claimName": "gone"}}}
    namespace.apply(pod("writer", TOOLBOX, ("touch", "/gone/file"), volumes=volumes))
    namespace.wait("pod", "writer", "jsonpath={.status.phase}=Succeeded")
    volume = namespace.get("pvc", "gone")["spec"]["volumeName"]
    namespace.delete("pod", "writer")
    namespace.delete("pvc", "gone")
    wait_until(lambda: kubectl.find("pv", volume) is None, f"volume {volume} to be deleted")


@runs(
    "docs/cluster.md",
    "make cluster-up",
    "make cluster-status",
    "export KUBECONFIG=/var/lib/fedsilo-cluster/kubeconfig PATH=/var/lib/fedsilo-cluster/bin:$PATH",
    "kubectl get pods -A",
)
def test_what_a_person_types_first(kubectl: Kubectl, terminal: Terminal) -> None:
    up, status, export, pods = terminal.commands
    del terminal.environment["KUBECONFIG"]
    assert "already up" in terminal.type(up), "a healthy cluster is left alone"
    assert terminal.type(status).endswith("The cluster is healthy.\n")
    terminal.type(export)
    assert "coredns" in terminal.type(pods)


@runs(
    "docs/cluster.md",
    "ctr -a /run/fedsilo-cluster/containerd.sock -n k8s.io images import scans.tar",
    "ctr -a /run/fedsilo-cluster/containerd.sock -n k8s.io images ls -q",
)
def test_an_image_of_one_s_own_starts_without_a_registry(namespace: Namespace, terminal: Terminal) -> None:
    load, names = terminal.commands
    image = "registry.example/scans-trainer:1.0"
    write_image(terminal.folder / "scans.tar", image, programs() / "pause")
    try:
        terminal.type(load)
        assert image in terminal.type(names).split()
        own = pod("own", image, ("/pause",))
        del own["spec"]["containers"][0]["imagePullPolicy"]
        namespace.apply(own)
        namespace.wait("pod", "own", "condition=Ready")
    finally:
        runtime.ctr("images", "rm", image)


@runs(
    "docs/cluster.md",
    ". .venv/bin/activate",
    "python -m hack.cluster api-up my-test",
    "python -m hack.cluster api-down my-test",
)
def test_an_api_server_alone_from_a_shell(kubectl: Kubectl, terminal: Terminal) -> None:
    activate, up, down = terminal.commands
    terminal.type(activate)
    try:
        alone = Kubectl(Path(terminal.type(up).strip()))
        assert alone.get("nodes")["items"] == []
    finally:
        terminal.type(down)
    assert not alone.kubeconfig.exists()
