"""Commands and options as a shell completes them, read from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OptionDescription:
    """An option of a command, as a shell completes it.

    :param names: of which the last is the longest.
    :param values: what may follow it; None where nothing does, empty where that is anything.
    :param files: whether a file or directory follows it.
    """

    names: tuple[str, ...]
    summary: str
    values: tuple[str, ...] | None
    files: bool


@dataclass(frozen=True)
class CommandDescription:
    """A command, as a shell completes what follows it.

    :param words: that lead to it; none for `fedsilo` itself.
    :param commands: name -> summary, of its own commands, or of the words that its argument may be.
    :param files: whether its arguments are files or directories.
    """

    words: tuple[str, ...]
    commands: dict[str, str]
    options: tuple[OptionDescription, ...]
    files: bool


def descriptions(parser: argparse.ArgumentParser, *words: str) -> Iterator[CommandDescription]:
    """A parser's command and all below it, the outermost first."""
    children: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    options, files = list[OptionDescription](), False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            children = action.choices
            summaries |= {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            options.append(_option(action))
        else:
            summaries |= {str(choice): str(choice) for choice in action.choices or ()}
            files = files or action.type is Path
    yield CommandDescription(words, summaries, tuple(options), files)
    for name, child in children.items():
        yield from descriptions(child, *words, name)


def _option(action: argparse.Action) -> OptionDescription:
    values = None if action.nargs == 0 else tuple(map(str, action.choices or ()))
    names = tuple(sorted(action.option_strings, key=len))
    files = action.type is Path or action.metavar in ("FILE", "DIR", "DIRECTORY")
    return OptionDescription(names, action.help or "", values, files)
