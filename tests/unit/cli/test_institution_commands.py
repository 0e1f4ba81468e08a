"""`fedsilo silo`: what an officer asks of a directory needs no more than the base installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo_agent.guard.audit import AuditLog

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
