"""What a command makes of a document, in a process of its own that is measured."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

SECONDS = 60.0
"""In which every command has ended, also on a machine that does much else; most take less than one."""


@dataclass(frozen=True)
class OpeningResult:
    """What came of it.

    :param code: exit code; None where the command did not end in time.
    :param lines: that it said.
    :param outside: files of the tests' own, outside of the stranger's directory, that were opened.
    :param peak: bytes of memory above those at its beginning.
    """

    code: int | None
    lines: list[str]
    outside: list[str]
    peak: int


def run_opening(command: Sequence[str], at: Path, outside: Path) -> OpeningResult:
    """Run a command in a directory.

    :param outside: a folder of which nothing may be read.
    """
    answer = at.with_name(f"{at.name}.answer")
    process = multiprocessing.get_context("fork").Process(target=_open, args=(command, at, outside, answer))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return OpeningResult(None, [], [], 0)
    return OpeningResult(**json.loads(answer.read_bytes()))


def _open(command: Sequence[str], at: Path, outside: Path, answer: Path) -> None:
    from fedsilo.cli.main import main

    os.chdir(at)
    read: set[str] = set()

    def record_open(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            read.add(os.path.realpath(os.fsdecode(arguments[0])))

    said = StringIO()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.addaudithook(record_open)
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main(list(command))
        except BaseException:
            code = -1
            traceback.print_exc()
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    strange = [name for name in read if name.startswith(str(outside))]
    found = {"code": code, "lines": said.getvalue().split("\n")[:-1], "outside": strange, "peak": peak}
    answer.write_text(json.dumps(found))
