"""What every process writes to standard error: lines for people, or one JSON object per line for programs.

A line of JSON says what it is about (`namespace` and `job`, `silo`, `round`) where that is known. What holds for the
whole process is set once, by `about`; what holds for one block and the tasks that it starts, by `concerning`. Nothing
else gets into a line than its message: no data, no keys.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

from typing_extensions import override

Format = Literal["text", "json"]

FACTS = ("namespace", "job", "silo", "round")
"""What a line may be about, in this order."""

_process: dict[str, object] = {}
_task: ContextVar[Mapping[str, object]] = ContextVar("concerning", default={})  # noqa: B039 (never changed)


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """The option that every process has."""
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="form of the log (default: text)"
    )


class Lines(logging.StreamHandler[TextIO]):
    """The handler of this module."""


def start_logging(form: Format = "text") -> None:
    """Write lines of this form from now on; to be called again when the arguments are known.

    Where somebody else listens already, as tests do, nothing changes.
    """
    ours = (handler for handler in logging.getLogger().handlers if isinstance(handler, Lines))
    handler = next(ours, None) or Lines(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def set_log_facts(**facts: object) -> None:
    """Set what the process is about; a fact that is None is forgotten."""
    _process.update(facts)


@contextmanager
def concerning(**facts: object) -> Iterator[None]:
    """Set what the block, and whatever it starts, is about."""
    token = _task.set({**_task.get(), **facts})
    try:
        yield
    finally:
        _task.reset(token)


def as_text(line: str) -> str:
    """A line of JSON as a person reads it; any other line as it is.

    What follows a line break is indented, so that no text passes for a line of another process.
    """
    try:
        content = json.loads(line)
        words = [content["time"], content["level"], content["message"], *filter(None, [content.get("error")])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return line
    return "\n    ".join(
        " ".join(map(str, words[:3])).splitlines() + "\n".join(map(str, words[3:])).splitlines()
    )


class JsonLines(logging.Formatter):
    """One JSON object per record.

    `time` is RFC 3339 in UTC; `error` is the traceback of an exception, if there is one.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        known = {**_process, **_task.get()}
        facts = {name: known[name] for name in FACTS if known.get(name) is not None}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **facts,
        }
        if record.exc_info:
            content["error"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=False, default=str)
