"""The terminal of tests: what it lets be typed, and what it takes for a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.terminal import Terminal


def test_what_one_command_sets_the_next_ones_have(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, ["export WORD='two lines\n'", "echo $WORD"])
    assert [terminal.type(command) for command in terminal.commands] == ["", "two lines\n"]
    assert terminal.untyped_commands == []


def test_no_command_is_typed_that_is_not_named(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, ["true"])
    with pytest.raises(AssertionError, match="`runs` does not name echo"):
        terminal.type("echo")
    with pytest.raises(AssertionError, match="true has no place"):
        terminal.type("true", {"place": "thing"})
    assert Terminal(tmp_path, ["true", "false"], typed={"true"}).untyped_commands == ["false"]


def test_a_command_that_fails_fails_the_test(tmp_path: Path) -> None:
    command = "echo lost >&2; false"
    terminal = Terminal(tmp_path, [command])
    with pytest.raises(AssertionError, match="lost"):
        terminal.type(command)
    with pytest.raises(AssertionError, match="lost"), terminal.start_command(command) as process:
        process.wait()


def test_a_question_is_answered_as_by_a_person(tmp_path: Path) -> None:
    command = "test -t 0 && read word && echo $word"
    terminal = Terminal(tmp_path, [command])
    assert terminal.type(command, answer="yes") == "yes\n"
    with pytest.raises(AssertionError):
        terminal.type(command)


def test_what_goes_on_is_interrupted(tmp_path: Path) -> None:
    command = "echo begun; sleep 1000"
    with Terminal(tmp_path, [command]).start_command(command) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
    assert process.returncode == -2
