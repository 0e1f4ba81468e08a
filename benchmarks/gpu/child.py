"""One part of a run, in a process of its own: a line of JSON on standard output for each case that is over.

What the measured code prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.gpu.cases import Case, Setting, SkippedCase, UnfinishedCase
from fedsilo.learning.devices import prepare_torch


def main() -> None:
    """Run the part that the arguments describe, which are one text of JSON."""
    asked = json.loads(sys.argv[1])
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    # Reports have a descriptor of their own; whatever else writes to 1 must not be taken for one.
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as reports:
        os.dup2(2, 1)
        setting = Setting(
            asked["device"], asked["size"], Path(asked["into"]), Path(asked["data"]), asked["ends"]
        )
        prepare_torch(1)
        cases = importlib.import_module(asked["module"]).cases(setting)
        report([case for case in cases if case.name not in asked["done"]], reports)


def end_with(parent: int, look_every: float = 1.0) -> None:
    """End this process, and what it has started, once its parent is gone: killed, it could not do so itself."""
    while os.getppid() == parent:
        time.sleep(look_every)
    os.killpg(0, signal.SIGKILL)


def report(cases: Sequence[Case], reports: TextIO) -> None:
    """Write the cases' names, run them, and write a line of each."""
    print(json.dumps([case.name for case in cases]), file=reports)
    for case in cases:
        began = time.monotonic()
        outcome = outcome_of(case)
        line = {"case": case.name, "seconds": round(time.monotonic() - began, 2), **outcome}
        print(json.dumps(line), file=reports)


def outcome_of(case: Case) -> dict[str, Any]:
    """Its figures, why it does not apply, or what went wrong."""
    try:
        found = case.run()
        if isinstance(found, UnfinishedCase):
            return {"figures": dict(found.figures), "unfinished": True}
        return {"figures": dict(found)}
    except SkippedCase as reason:
        return {"skipped": str(reason)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})"}


if __name__ == "__main__":
    main()
