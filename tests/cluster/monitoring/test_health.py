"""Argo CD's health checks of jobs and Silos, by Lua itself. They need no cluster, but a Debian package."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster.packages import unpack_package
from tests.paths import ROOT

SCRIPTS = yaml.safe_load((ROOT / "manifests" / "argocd" / "health.yaml").read_text())["data"]


@pytest.fixture(scope="module")
def lua() -> Path:
    return unpack_package("lua5.4") / "usr" / "bin" / "lua5.4"


def table(value: Any) -> str:
    """A value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {table(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(table, value)) + "}"
    return json.dumps(value)


def health(lua: Path, kind: str, conditions: dict[str, str] | None) -> tuple[str, str]:
    """Status and message that Argo CD would show."""
    stated = [
        {"type": name, "status": status, "message": name} for name, status in (conditions or {}).items()
    ]
    obj = {} if conditions is None else {"status": {"conditions": stated}}
    script = SCRIPTS[f"resource.customizations.health.fedsilo.io_{kind}"]
    check = f"local function check()\n{script}\nend\nlocal h = check()\nprint(h.status, h.message)"
    program = f"obj = {table(obj)}\n{check}"
    done = subprocess.run([lua, "-"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, _, message = done.stdout.strip().partition("\t")
    return status, message


@pytest.mark.parametrize(
    ("kind", "conditions", "shown"),
    [
        ("FederatedJob", None, ("Progressing", "The operator has not looked at it yet.")),
        ("FederatedJob", {"Accepted": "True", "Ready": "False"}, ("Progressing", "Ready")),
        ("FederatedJob", {"Suspended": "True", "Ready": "False"}, ("Suspended", "Suspended")),
        ("FederatedJob", {"Complete": "True", "Ready": "True"}, ("Healthy", "Ready")),
        ("FederatedJob", {"Failed": "True", "Ready": "False", "Stalled": "True"}, ("Degraded", "Stalled")),
        ("Silo", {"Ready": "True", "Valid": "True"}, ("Healthy", "Ready")),
        ("Silo", {"Ready": "False"}, ("Progressing", "Ready")),
        ("Silo", {"Ready": "True", "Valid": "False"}, ("Degraded", "Valid")),
    ],
)
def test_what_argo_cd_shows(
    lua: Path, kind: str, conditions: dict[str, str] | None, shown: tuple[str, str]
) -> None:
    assert health(lua, kind, conditions) == shown
