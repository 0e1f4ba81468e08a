"""The unit of systemd: it is understood, and what it starts runs as it stands there, under its user and hardening."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsilo.cli import silo
from tests.paths import ROOT

UNIT = ROOT / "systemd" / "fedsilo-silo.service"
STATE = "/var/lib/fedsilo-silo"


def service() -> Mapping[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    # The program of the unit is not installed on this machine.
    text = UNIT.read_text().replace("/opt/fedsilo/bin/fedsilo", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_unit_permits_what_a_trainer_needs_to_isolate_itself() -> None:
    settings = service()
    assert settings["RestrictNamespaces"].split() == ["user", "net", "mnt"]
    assert {"@system-service", "@mount"} <= set(settings["SystemCallFilter"].split())
    assert f"/var/lib/{settings['StateDirectory']}" == STATE


def test_the_command_of_the_unit_is_one_that_there_is() -> None:
    program, *arguments = service()["ExecStart"].split()
    assert program == "/opt/fedsilo/bin/fedsilo"
    assert arguments == ["silo", "serve", "--dir", STATE]
    assert "serve" in silo.QUESTIONS


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_the_command_of_the_unit_runs_as_it_stands(tmp_path: Path) -> None:
    """In a mount namespace of its own, in which the unit's paths are there: a directory that has not joined is one
    clear line, with the exit code after which systemd does not start it again."""
    state, programs = tmp_path / "state", Path(sys.prefix)
    state.mkdir()
    script = (
        "set -e; mount -t tmpfs none /opt; mkdir /opt/fedsilo; mount -t tmpfs none /var/lib; "
        f"mkdir {STATE}; mount --bind {programs} /opt/fedsilo; mount --bind {state} {STATE}; "
        f"exec {service()['ExecStart']}"
    )
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True)
    if "unshare failed" in done.stderr:
        pytest.skip("this system permits no mount namespace")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"fedsilo: {STATE}: is no directory of a silo that has joined")
    assert str(done.returncode) in service()["RestartPreventExitStatus"].split()
