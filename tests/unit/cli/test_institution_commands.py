"""What an officer asks of a silo's directory with `fedsilo silo` needs no more than the base installation."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.main import main
from fedsilo_agent.guard.audit import AuditLog
from tests.unit.api.test_invitation import INVITATION
from tests.unit.institution.parts import directory

BASE_ONLY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name}}", name=name)

sys.meta_path.insert(0, Missing())
from fedsilo.cli.commands import LOCAL_PACKAGES
from fedsilo.cli.main import main
assert {packages} == set(LOCAL_PACKAGES)
sys.exit(main({arguments}))
"""
PACKAGES = {"torch", "torchvision", "sklearn", "PIL", "aiohttp", "uvloop", "rich"}


@pytest.mark.parametrize("arguments", [["silo", "--help"], ["silo", "receipts"]])
def test_the_base_installation_is_enough(arguments: list[str], tmp_path: Path) -> None:
    AuditLog(tmp_path / "audit").write("finished", succeeded=True)
    given = [*arguments, str(tmp_path)] if arguments[-1] == "receipts" else arguments
    program = BASE_ONLY.format(packages=repr(PACKAGES), arguments=repr(given))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_port_that_the_page_cannot_have_is_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silo_directory = str(directory(tmp_path / "silo").root)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for port, why in ((taken, "another program listens on it already"), (70000, "is no port, which are")):
            assert main(["silo", "dashboard", "--dir", silo_directory, "--port", str(port)]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"fedsilo: --port {port}: {why}")
            assert line.endswith("; name another, or leave --port out for a free one")
            assert not re.search("errno", line, re.IGNORECASE)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory to another user needs root")
@pytest.mark.parametrize(
    "arguments",
    [
        ["serve"],
        ["rotate-key"],
        ["leave", "--yes"],
        ["approve", "digits-clinic-1a2b3c4d"],
        ["join", "invitation.yaml"],
    ],
)
def test_root_writes_nothing_into_the_directory_of_another_user(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that user's silo could not read it afterwards."""
    monkeypatch.chdir(tmp_path)
    Path("invitation.yaml").write_text(INVITATION.to_yaml())
    silo_directory = directory(tmp_path / "silo")
    user = pwd.getpwnam("nobody")
    os.chown(silo_directory.root, user.pw_uid, user.pw_gid)
    before = sorted(tmp_path.rglob("*"))
    assert main(["silo", *arguments, "--dir", str(silo_directory.root)]) == 2
    assert capsys.readouterr().err == (
        f"fedsilo: {silo_directory.root}: belongs to user nobody, who could not read what root writes there; "
        "run the command as that user, for instance with sudo -u nobody\n"
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["silo", "status", "--dir", str(silo_directory.root)]) == 0
