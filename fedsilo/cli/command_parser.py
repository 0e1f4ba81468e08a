"""The command line of `fedsilo`, whose refusals say what was meant: a command, an option, a file without `-f`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedsilo.cli.help_text import CommandsHelp

YAML_SUFFIXES = (".yaml", ".yml")
"""Endings by which a word of the command line is known as a manifest."""


class CommandParser(argparse.ArgumentParser):
    """Parser of a command line on which no option of one value is given twice: the first would be lost in silence."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"allow_abbrev": False, "formatter_class": CommandsHelp})
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(args or ())
        if self._subparsers is not None:  # what follows is its command's
            words = list(takewhile(lambda word: word.startswith("-"), words))
        self._require_known_options(words)
        for file in _stray_manifests(words, self._option_string_actions):
            self.error(f"{file}: is given without -f; write -f {file}")
        return super().parse_known_args(args, namespace)

    def _require_known_options(self, words: Sequence[str]) -> None:
        for word in words:
            if word == "--":
                return
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                known = [option for option in self._option_string_actions if option.startswith("--")]
                self.error(f"{name}: is no option; {_closest(name, known)}")

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"{value}: is no command; {_closest(value, list(action.choices))}")
        super()._check_value(action, value)


class _StoreOnce(argparse._StoreAction):
    stored = False

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.stored and option_string is not None:
            raise argparse.ArgumentError(self, "is given twice; give it once")
        self.stored = True
        super().__call__(parser, namespace, values, option_string)


def _stray_manifests(words: Sequence[str], options: Mapping[str, argparse.Action]) -> Iterator[str]:
    """Manifests among the words that no option takes, of a command that has room for them behind `-f`."""
    takes_files = options.get("-f")
    if takes_files is None or takes_files.dest != "file":
        return
    given = any(word.partition("=")[0] in takes_files.option_strings for word in words)
    if given and not isinstance(takes_files, argparse._AppendAction):
        return
    taker: argparse.Action | None = None
    for word in words:
        if word.startswith("-"):
            taker = options.get(word)
            continue
        if Path(word).suffix in YAML_SUFFIXES and (taker is None or taker.nargs == 0):
            yield word
        if taker is not None and taker.nargs != "+":
            taker = None


def _closest(name: str, known: Sequence[str]) -> str:
    from fedsilo.api.messages import closest  # not above: it imports what no other command line needs

    return closest(name, known)
