"""`fedsilo silo`: what an officer asks of a directory needs no more than the base installation."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.main import main
from fedsilo_agent.guard.audit import AuditLog
from tests.unit.institution.parts import directory

BASE_ONLY = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name}}", name=name)

sys.meta_path.insert(0, Missing())
from fedsilo.cli.main import LOCAL, main
assert {packages} == set(LOCAL)
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
    house = str(directory(tmp_path / "house").root)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for port, why in ((taken, "another program listens on it already"), (70000, "is no port, which are")):
            assert main(["silo", "dashboard", "--dir", house, "--port", str(port)]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"fedsilo: --port {port}: {why}")
            assert line.endswith("; name another, or leave --port out for a free one")
            assert not re.search("errno", line, re.IGNORECASE)
