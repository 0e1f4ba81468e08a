"""What a person sees who installed fedsilo without the extra that a command needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.main import main
from tests.paths import ROOT


def test_a_missing_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails as where it is not installed
    # What an earlier test imported holds torch already.
    for module in [name for name in sys.modules if name.startswith(("fedsilo.learning", "fedsilo.local"))]:
        monkeypatch.delitem(sys.modules, module)
    manifest = str(ROOT / "examples" / "quickstart.yaml")
    assert main(["evaluate", "--model", "model.safetensors", "-f", manifest]) == 2
    assert capsys.readouterr().err == "fedsilo: this command needs torch; pip install 'fedsilo[local]'\n"


@pytest.mark.parametrize(
    "arguments", [["methods"], ["methods", "fedavg"], ["validate", "-f", "examples/fedavg.yaml"]]
)
def test_output_for_which_there_is_no_space_is_an_error_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "fedsilo.cli.main", *arguments]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    said = "fedsilo: No space left on device; make room and repeat the command\n"
    assert (ended.returncode, ended.stderr) == (1, said)
