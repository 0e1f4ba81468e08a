"""What a person sees who installed fedsilo without the extra that a command needs."""

from __future__ import annotations

import sys

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
