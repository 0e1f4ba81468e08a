"""What runs, and with which flags: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.cluster.paths import (
    ADDRESS,
    CGROUP,
    CONTAINERD_SOCKET,
    DNS_ADDRESS,
    DOMAIN,
    NODE,
    OWNER,
    PODS,
    PODS_LOGS,
    SERVICES,
    STATE,
)

ISSUER = f"https://kubernetes.default.svc.{DOMAIN}"


@dataclass(frozen=True)
class Component:
    """One long-lived process of the test cluster.

    :param health: an address that answers 200 when it is fine; empty where only its running can be checked.
    """

    owner: str
    command: tuple[str, ...]
    log: Path
    health: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.owner.rpartition("/")[2]


@dataclass(frozen=True)
class ControlPlane:
    """Where one API server, with its etcd and its controllers, keeps its files and listens."""

    owner: str
    root: Path
    address: str
    port: int
    etcd_port: int
    peer_port: int
    controllers_port: int

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.port}"

    def component(self, name: str, command: list[str], health: str = "") -> Component:
        return Component(f"{self.owner}/{name}", tuple(command), self.root / "logs" / f"{name}.log", health)


def etcd(plane: ControlPlane, programs: Path) -> Component:
    """The etcd process of a control plane, without fsync: no data here need outlive a power failure."""
    client = f"http://127.0.0.1:{plane.etcd_port}"
    peer = f"http://127.0.0.1:{plane.peer_port}"
    command = [
        f"{programs}/etcd",
        "--name=fedsilo",
        f"--data-dir={plane.root}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=fedsilo={peer}",
    ]
    return plane.component("etcd", command, f"{client}/health")


def apiserver(plane: ControlPlane, programs: Path, *flags: str) -> Component:
    pki = plane.pki
    command = [
        f"{programs}/kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}",
        f"--bind-address={plane.address}",
        f"--advertise-address={plane.address}",
        f"--secure-port={plane.port}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        *flags,
    ]
    return plane.component("kube-apiserver", command, f"{plane.server}/readyz")


def controller_manager(plane: ControlPlane, programs: Path, kubeconfig: Path, *flags: str) -> Component:
    pki = plane.pki
    command = [
        f"{programs}/kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.controllers_port}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-account.key",
        *flags,
    ]
    health = f"https://127.0.0.1:{plane.controllers_port}/healthz"
    return plane.component("kube-controller-manager", command, health)


NODE_PLANE = ControlPlane(OWNER, STATE, ADDRESS, 6443, 12379, 12380, 10257)


@dataclass(frozen=True)
class Node:
    """All components of the one-node cluster, from the programs' directory."""

    programs: Path
    containerd_config: Path
    python: str

    def etcd(self) -> Component:
        return etcd(NODE_PLANE, self.programs)

    def containerd(self) -> Component:
        return NODE_PLANE.component("containerd", ["containerd", f"--config={self.containerd_config}"])

    def apiserver(self) -> Component:
        pki = NODE_PLANE.pki
        return apiserver(
            NODE_PLANE,
            self.programs,
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt",
            f"--kubelet-client-key={pki}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
        )

    def followers(self) -> list[Component]:
        """What starts once the API server answers."""
        pki = NODE_PLANE.pki
        component = NODE_PLANE.component
        return [
            controller_manager(
                NODE_PLANE,
                self.programs,
                kubeconfig("kube-controller-manager"),
                f"--cluster-signing-cert-file={pki}/ca.crt",
                f"--cluster-signing-key-file={pki}/ca.key",
                "--allocate-node-cidrs",
                f"--cluster-cidr={PODS}",
                "--node-cidr-mask-size=24",
            ),
            component(
                "kube-scheduler",
                [
                    f"{self.programs}/kube-scheduler",
                    f"--kubeconfig={kubeconfig('kube-scheduler')}",
                    "--bind-address=127.0.0.1",
                    "--leader-elect=false",
                ],
                "https://127.0.0.1:10259/healthz",
            ),
            component(
                "kubelet",
                [
                    f"{self.programs}/kubelet",
                    f"--config={STATE}/kubelet.yaml",
                    f"--kubeconfig={kubeconfig('kubelet')}",
                    f"--root-dir={STATE}/kubelet",
                    f"--hostname-override={NODE}",
                    f"--node-ip={ADDRESS}",
                ],
                "http://127.0.0.1:10248/healthz",
            ),
            component(
                "kube-proxy",
                [f"{self.programs}/kube-proxy", f"--config={STATE}/kube-proxy.yaml"],
                "http://127.0.0.1:10256/healthz",
            ),
            component("local-volumes", [self.python, "-m", "hack.cluster.storage"]),
        ]

    def network_policies(self) -> Component:
        """kube-router as the enforcer of NetworkPolicies and nothing else; it needs the Node object."""
        command = [
            f"{self.programs}/kube-router",
            f"--kubeconfig={kubeconfig('admin')}",
            f"--hostname-override={NODE}",
            f"--service-cluster-ip-range={SERVICES}",
            "--iptables-sync-period=30s",
        ]
        return NODE_PLANE.component("kube-router", command, "http://127.0.0.1:20244/healthz")


COMPONENT_NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
    "kube-router",
    "local-volumes",
)


def kubeconfig(name: str) -> Path:
    """Path of a component's kubeconfig."""
    return STATE / "kubeconfigs" / name


def kubelet_configuration(resolv_conf: Path) -> dict[str, Any]:
    """Configuration of the kubelet as a KubeletConfiguration. Images are never collected: no registry could give them
    back.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(NODE_PLANE.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(NODE_PLANE.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(NODE_PLANE.pki / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": str(resolv_conf),
        "podLogsDir": str(PODS_LOGS),
        "volumePluginDir": str(STATE / "kubelet-volume-plugins"),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "readOnlyPort": 0,
    }


def kube_proxy_configuration() -> dict[str, Any]:
    """KubeProxyConfiguration that leaves conntrack's limits and the loopback's routing as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(kubeconfig("kube-proxy"))},
        "clusterCIDR": PODS,
        "detectLocalMode": "ClusterCIDR",
        "iptables": {"localhostNodePorts": False},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
