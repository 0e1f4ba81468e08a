"""What shells complete of a command line of `fedsilo`."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from fedsilo.cli.command_description import descriptions
from fedsilo.cli.commands import COMMANDS, whole_parser
from fedsilo.cli.completion import SHELLS
from fedsilo.cli.main import main
from fedsilo.cli.silo import QUESTIONS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("va", ["validate"]),
        ("silo re", ["refuse", "receipts"]),
        ("run --wo", ["--workdir", "--workers"]),
        ("silo status --j", ["--json"]),
        ("status --a", ["--all-namespaces"]),
        ("logs --component g", ["guard"]),
        ("completion ", ["bash", "zsh", "fish", "-h", "--help"]),
        ("verify --re", ["--replay"]),
        # Nothing of its own: bash completes files.
        *(
            (f"{line} x", list[str]())
            for line in ("run -f", "run --file", "verify", "export --onnx", "run --workers")
        ),
    ],
)
def test_bash_completes_commands_options_and_values(
    typed: str, offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    *before, last = f"fedsilo {typed}".split(" ")
    words = shlex.join([*before, last])
    line = f'COMP_WORDS=({words}); COMP_CWORD={len(before)}; _fedsilo; printf "%s\\n" "${{COMPREPLY[@]}}"'
    asked = ["bash", "--norc", "-c", f"{script('bash', capsys)}\n{line}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    found = list(descriptions(whole_parser()))
    assert [command.words for command in found if len(command.words) == 1] == [(name,) for name in COMMANDS]
    assert {command.words[1] for command in found if len(command.words) == 2} == set(QUESTIONS)
    for command in found:
        for option in command.options:
            assert option.names[-1].lstrip("-") in text


def test_manifests_are_files() -> None:
    (run,) = (command for command in descriptions(whole_parser()) if command.words == ("run",))
    files = {option.names[-1]: option.files for option in run.options}
    assert files["--file"]
    assert files["--workdir"]
    assert not files["--workers"]
