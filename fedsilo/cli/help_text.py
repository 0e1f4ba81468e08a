"""The help of commands, and of a command that has commands of its own."""

from __future__ import annotations

import argparse

from typing_extensions import override


class CommandsHelp(argparse.HelpFormatter):
    """Every command on a line with what it does: argparse forgets that commands are indented once more than options."""

    @override
    def add_argument(self, action: argparse.Action) -> None:
        """Take the width of one argument, or of a list of commands, into account."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            width = max(len(name) for name in action.choices)
            needed = width + self._current_indent + self._indent_increment
            self._action_max_length = max(self._action_max_length, needed)


def description(summary: str) -> str:
    """What a command's help begins with; words such as ONNX keep their letters."""
    return f"{summary[0].upper()}{summary[1:]}."
