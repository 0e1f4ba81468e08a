"""A shell in which a test types the commands of a page."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import warm
from tests.paths import ROOT

_PROGRAMS = str(Path(sys.executable).parent)

# A make or a pytest that runs this one is no part of what a reader has.
_RUNNER_VARIABLES = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTEST_CURRENT_TEST")


def _environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if name not in _RUNNER_VARIABLES}
    path = os.pathsep.join([_PROGRAMS, os.environ["PATH"]])
    return {**mine, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def checkout(folder: Path) -> Path:
    """A directory that looks like the project after `make setup`; what is written at its top stays there."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name[0] != "." and entry.name not in ("build", "runs"):
            (folder / entry.name).symlink_to(entry)
    environment = folder / ".venv"
    environment.mkdir()
    for entry in Path(sys.prefix).iterdir():
        (environment / entry.name).symlink_to(entry)
    installed = environment / ".installed"  # or make would install once more
    installed.unlink(missing_ok=True)
    installed.touch()
    return folder


@dataclass
class Terminal:
    """What a reader has before them: a directory, an environment that commands change, and a page's commands.

    A command that is nothing but a call of `fedsilo` needs no shell, and begins warm (`tests.warm`).

    :param commands: those that may be typed; all of them must be before the test is over.
    :param cold: whether a shell runs these too.
    """

    folder: Path
    commands: Sequence[str]
    environment: dict[str, str] = field(default_factory=_environment)
    typed: set[str] = field(default_factory=set)
    cold: bool = False

    @property
    def untyped_commands(self) -> list[str]:
        """Commands that are still to come."""
        return [command for command in self.commands if command not in self.typed]

    def type(
        self, command: str, instead: Mapping[str, str] | None = None, *, answer: str | None = None
    ) -> str:
        """Run a command to its end; its standard output. What it exports is there for those after it.

        :param instead: what stands on the page for something -> that thing.
        :param answer: what a person says to its question; nobody is there when None.
        """
        taken = self._take_command(command, instead)
        if answer is None and (words := self._call(taken)) is not None:
            with self._wait_for_end(self._warm(words, subprocess.PIPE)) as process:
                output, errors = process.communicate()
            assert process.returncode == 0, f"{command}: {process.returncode}: {output}{errors}"
            return str(output)
        with tempfile.NamedTemporaryFile() as after:
            script = f"{taken}\ncode=$?; env -0 > '{after.name}'; exit $code"
            code, output, errors = self._run_script(script, answer)
            left = after.read().decode()
        assert code == 0, f"{command}: {code}: {output}{errors}"
        pairs = (entry.partition("=") for entry in left.split("\0") if entry)
        self.environment = {name: value for name, _, value in pairs}
        return output

    @contextmanager
    def start_command(
        self, command: str, instead: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a command that has no end of its own, or a late one: it is interrupted with the block, as by Ctrl-C.

        One that has ended before must have ended well.
        """
        taken = self._take_command(command, instead)
        words = self._call(taken)
        with self._wait_for_end(
            self._bash(taken, subprocess.DEVNULL, subprocess.STDOUT)
            if words is None
            else self._warm(words, subprocess.STDOUT)
        ) as process:
            yield process
            assert process.poll() in (None, 0), f"{command}: {process.returncode}: {process.communicate()[0]}"

    def _take_command(self, command: str, instead: Mapping[str, str] | None) -> str:
        assert command in self.commands, f"`runs` does not name {command}"
        self.typed.add(command)
        for written, thing in (instead or {}).items():
            assert written in command, f"{command} has no {written}"
            command = command.replace(written, thing)
        return command

    def _run_script(self, script: str, answer: str | None) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        person, keyboard = pty.openpty()
        try:
            if answer is not None:
                os.write(person, f"{answer}\n".encode())
            given = subprocess.DEVNULL if answer is None else keyboard
            with self._wait_for_end(self._bash(script, given, subprocess.PIPE)) as process:
                output, errors = process.communicate()
                return process.returncode, output, errors
        finally:
            os.close(person)
            os.close(keyboard)

    def _call(self, command: str) -> list[str] | None:
        """The arguments of a command that calls `fedsilo` in a way that a shell adds nothing to."""
        unquoted = re.sub("'[^']*'", "", command)
        if self.cold or not unquoted.startswith("fedsilo ") or not re.fullmatch(r"[\w./:=@%+, -]+", unquoted):
            return None
        return shlex.split(command)[1:] if warm.is_warmable(self.environment) else None

    def _warm(self, arguments: Sequence[str], stderr: int) -> subprocess.Popen[str]:
        """The command as `_bash` runs it."""
        return warm.start(
            "fedsilo.cli.main",
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def _bash(self, script: str, stdin: int, stderr: int) -> subprocess.Popen[str]:
        """A shell in a session of its own."""
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    @contextmanager
    def _wait_for_end(self, process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
        """A process of which nothing is left behind."""
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
