"""The operator as a release of its chart on the test cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hack.cluster.paths import KUBECONFIG
from hack.operator import NAMESPACE
from tests.cluster.charts.helm import OPERATOR, Helm
from tests.cluster.institutions.gateway import GatewayAddress

GATEWAY = GatewayAddress("127.0.0.1", 18443)
"""Address of the gateway of the release as it is installed, by a forwarded port."""

HELM = Helm(KUBECONFIG)


def release(verb: str, *options: str, chart: Path = OPERATOR, **values: Any) -> None:
    """Install or upgrade the operator, and wait until it is ready."""
    HELM.run(
        *(verb, "fedsilo", str(chart), "-n", NAMESPACE, "--wait", "--timeout", "2m", *options),
        values=values,
        timeout=150,
    )
