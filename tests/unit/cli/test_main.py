"""What a person sees who installed fedsilo without the extra that a command needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.columns import columns
from fedsilo.cli.main import main
from tests.paths import ROOT


def test_a_missing_extra_is_named() -> None:
    """In a process of its own: what another test has imported holds torch already."""
    without = "import sys; sys.modules['torch'] = None; from fedsilo.cli.main import main; sys.exit(main())"
    arguments = ["evaluate", "--model", "model.safetensors", "-f", "examples/quickstart.yaml"]
    ended = subprocess.run(
        [sys.executable, "-c", without, *arguments], capture_output=True, text=True, cwd=ROOT
    )
    said = "fedsilo: this command needs torch; pip install 'fedsilo[local]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


@pytest.mark.parametrize(
    "arguments", [["methods"], ["methods", "fedavg"], ["validate", "-f", "examples/fedavg.yaml"]]
)
def test_output_for_which_there_is_no_space_is_an_error_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "fedsilo.cli.main", *arguments]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    said = "fedsilo: No space left on device; make room and repeat the command\n"
    assert (ended.returncode, ended.stderr) == (1, said)


def test_help_imports_nothing_that_it_does_not_need() -> None:
    code = "import sys\nfrom fedsilo.cli.main import main\nassert main(['--help']) == 0\nprint(sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = ended.stdout.splitlines()[-1]
    for heavy in ("asyncio", "importlib.metadata", "pydantic", "numpy", "yaml"):
        assert repr(heavy) not in imported


def test_no_document_steers_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text('kind: "\\e[31mFederated\\u2028fedsilo: all is well\\u202Ebo"\n')
    assert main(["validate", "-f", str(path)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == said.count("\n")
    assert all(line.isprintable() for line in said.split("\n"))
    assert columns([("\x1b[2J", "a\nb")]) == r"\x1b[2J  a\nb"
