"""helm as the tests call it, and the values with which they do."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.observed import Object
from fedsilo.api.silo_status import HubAddress
from fedsilo.wire import SigningKey, make_authority
from hack.cluster.binaries import programs
from hack.examples import documents
from hack.images import reference
from hack.operator import ROLES
from tests.paths import ROOT

CHARTS = ROOT / "charts"
OPERATOR, SILO = CHARTS / "fedsilo", CHARTS / "fedsilo-silo"

Values = dict[str, Any]

HOOK = "helm.sh/hook"

GLOBAL: Values = {"registry": "registry.example"}
"""Images that name no registry are those of this one; without it both charts refuse them."""


class HelmError(AssertionError):
    """helm ended with an error; its text is the message."""


@dataclass(frozen=True)
class Helm:
    """helm with one kubeconfig, or with none where it only renders.

    :param within: command line that runs another where the cluster can be reached; empty where that is here.
    """

    kubeconfig: Path | None = None
    within: tuple[str, ...] = ()

    def run(self, *arguments: str, values: Values | None = None, timeout: float = 120) -> str:
        """Run a helm command and return its standard output.

        :raises HelmError: when it fails.
        """
        command = [*self.within, str(programs() / "helm"), *arguments]
        if self.kubeconfig is not None:
            command += ["--kubeconfig", str(self.kubeconfig)]
        if values is not None:
            command += ["--values", "-"]
        done = subprocess.run(
            command, input=json.dumps(values or {}), capture_output=True, text=True, timeout=timeout
        )
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stderr.strip()} {done.stdout.strip()}")
        return done.stdout

    def refusal(self, *arguments: str, values: Values | None = None) -> str:
        """Run a command that must fail; what it says."""
        try:
            said = self.run(*arguments, values=values)
        except HelmError as failed:
            return str(failed)
        raise AssertionError(f"helm {' '.join(arguments)} was not refused but said: {said}")


def render(
    chart: Path, values: Values, release: str = "north", namespace: str = "fedsilo-system"
) -> list[Object]:
    """The objects of a release, those of `helm test` included; a registry is named unless the values name one."""
    given = merge_values({"global": GLOBAL}, values)
    return objects(Helm().run("template", release, str(chart), "-n", namespace, values=given))


def objects(text: str) -> list[Object]:
    """The objects of what helm has rendered."""
    return [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]


def images() -> Values:
    """The images of this tree, as the charts name images."""
    names = {role: reference(role).rsplit(":", 1) for role in ("operator", *ROLES)}
    return {"images": {role: {"repository": name, "tag": tag} for role, (name, tag) in names.items()}}


def is_hook(item: Object) -> bool:
    """Whether it is there for `helm test` only."""
    return HOOK in item["metadata"].get("annotations", {})


def quickstart(name: str) -> tuple[str, Values]:
    """The namespace and the values of a silo of the quickstart, whose images are of a registry that is named."""
    (silo,) = (
        item
        for item in documents("quickstart.yaml")
        if item["kind"] == "Silo" and item["metadata"]["name"] == name
    )
    return silo["metadata"]["namespace"], {"global": GLOBAL, **silo["spec"]}


def nested_values(path: str, value: object) -> Values:
    """Values that set one, by its path with dots."""
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def merge_values(first: Values, second: Values) -> Values:
    """Values in which the second win, as helm merges them."""
    both = first | second
    for name in first.keys() & second.keys():
        if isinstance(first[name], dict) and isinstance(second[name], dict):
            both[name] = merge_values(first[name], second[name])
    return both


def invitation(silo: str, *, private: bool = True) -> SiloInvitation:
    """An invitation of a hub.

    :param private: whether the authority of the hub's certificate is its own.
    """
    hub = HubAddress(
        url="https://hub.example:8443",
        ca_certificate=make_authority().cert_pem.decode() if private else None,
        key=SigningKey.generate().verify_key.to_text(),
    )
    return SiloInvitation.of(hub, silo, "a-token_with<letters>&more", Time("2026-12-01T00:00:00Z"))
