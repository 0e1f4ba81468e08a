"""The command as kubectl's plugin: one program, two names."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedsilo.cli.commands import COMMANDS, PLUGIN
from tests.paths import ROOT
from tests.unit.test_docs import options

CALL = "import sys\nfrom fedsilo.cli.main import main\nsys.exit(main())\n"
PAGE = ROOT / "docs" / "kubectl.md"


@pytest.mark.parametrize(("name", "shown"), [("kubectl-fedsilo", "kubectl fedsilo"), ("fedsilo", "fedsilo")])
def test_usage_shows_the_name_that_it_was_called_by(tmp_path: Path, name: str, shown: str) -> None:
    program = tmp_path / name
    program.write_text(CALL)
    for arguments, usage in ((["--help"], "[-h] [--version] COMMAND ..."), (["why", "--help"], "why [-h]")):
        done = subprocess.run(
            [sys.executable, str(program), *arguments], capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(f"usage: {shown} {usage}")


def test_both_names_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[PLUGIN] == scripts["fedsilo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_arguments(command: str) -> None:
    assert importlib.import_module(f"fedsilo.cli.{command.replace('-', '_')}").run
    options(command)


def test_the_page_shows_commands_that_exist() -> None:
    lines = re.findall(r"^kubectl fedsilo (.*)$", PAGE.read_text(), re.MULTILINE)
    shown = [shlex.split(line, comments=True) for line in lines]
    assert {words[0] for words in shown} == {"status", "why", "logs", "model", "approve", "refuse"}
    for command, *arguments in shown:
        options(command).parse_args(arguments)
