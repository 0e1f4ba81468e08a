"""What a person reads about the components."""

from __future__ import annotations

from hack.cluster.processes import Process
from hack.cluster.status import component_rows


def test_the_table_names_every_component_and_shows_only_what_was_started() -> None:
    running = [
        Process("node/etcd", 100, True, 65.9),
        Process("node/containerd", 200, True, 90_061.0),
        Process("node/containerd", 201, False, 3.0),  # a pod's shim
    ]
    assert component_rows({"etcd": "ok"}, running) == [
        "COMPONENT                      PID                UP  HEALTH",
        "etcd                           100           0:01:05  ok",
        "kube-apiserver                   -                 -  not running",
        "kube-controller-manager          -                 -  not running",
        "kube-scheduler                   -                 -  not running",
        "containerd                     200    1 day, 1:01:01  running",
        "kubelet                          -                 -  not running",
        "kube-proxy                       -                 -  not running",
        "kube-router                      -                 -  not running",
        "local-volumes                    -                 -  not running",
    ]
