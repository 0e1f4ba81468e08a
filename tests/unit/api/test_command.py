"""The command line of `fedsilo`: exit codes, which stream says what, and that only the called command is imported."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from fedsilo.cli.commands import COMMANDS
from fedsilo.cli.main import main
from fedsilo.cli.silo import QUESTIONS
from fedsilo.errors import FedsiloError, QuorumLost
from tests.unit.api.manifests import GOOD_MANIFESTS, edited_manifest


def test_valid_manifest(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOOD_MANIFESTS)
    assert main(["validate", "-f", "digits.yaml"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    assert streams.out == (
        "digits.yaml: valid\n"
        "  job     federation/digits\n"
        "  method  fedavg\n"
        "  model   lenet on digits (1 x 8 x 8, 10 classes)\n"
        "  silos   3: west, north, south\n"
        "  rounds  10, all silos in each\n"
        "  quorum  2 within 1h30m\n"
    )


def test_summary_of_a_sample(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(edited_manifest(("fraction: 1.0, minSilos: 2", "fraction: 0.5")))
    assert main(["validate", "--file", str(path)]) == 0
    assert "  rounds  10, 2 drawn silos in each\n  quorum  2 within 1h30m\n" in capsys.readouterr().out


def test_invalid_manifest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(edited_manifest(("rounds: 10", "rounds: -1"), ("classes: 10", "classes: 1")))
    assert main(["validate", "-f", "bad.yaml"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    job = "fedsilo: bad.yaml: document 5 (FederatedJob digits): spec."
    assert streams.err == (
        f"{job}data.classes: 1: is too small; use 2 or more\n"
        f"{job}training.rounds: -1: is too small; use 0 or more\n"
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedsilo {version('fedsilo')}\n"


@pytest.mark.parametrize(("arguments", "listed"), [([], COMMANDS), (["silo"], QUESTIONS)])
def test_help_lists_all_commands_each_on_a_line_with_what_it_does(
    arguments: list[str], listed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--help"]) == 0
    shown = dict(re.findall(r"^    ([a-z-]+)  +(\w+) ", capsys.readouterr().out, flags=re.MULTILINE))
    assert shown == {name: summary.partition(" ")[0] for name, summary in listed.items()}


@pytest.mark.parametrize(
    "arguments", [[], ["federate"], ["validate"], ["validate", "--fil", "x"], ["--verbose"]]
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("usage: fedsilo")


def command(outcome: int | BaseException) -> ModuleType:
    """A sub-command that ends in this way."""

    def run(_args: argparse.Namespace) -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    module = ModuleType("fedsilo.cli.methods")
    module.__dict__.update(add_arguments=lambda _parser: None, run=run)
    return module


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (0, 0, ""),
        (3, 3, ""),
        (QuorumLost("north is gone\nretry"), 4, "fedsilo: north is gone\nfedsilo: retry\n"),
        (FedsiloError("defect"), 1, "fedsilo: defect\n"),
        (KeyboardInterrupt(), 130, "fedsilo: interrupted\n"),
    ],
)
def test_how_a_command_ends(
    outcome: int | BaseException,
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fedsilo.cli.methods", command(outcome))
    assert main(["methods"]) == code
    assert capsys.readouterr().err == message


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fedsilo.cli.methods", command(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["methods"])


def test_only_the_called_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fedsilo.cli.run", None)  # importing it would fail
    assert main(["validate", "-f", str(GOOD_MANIFESTS / "digits.yaml")]) == 0
