"""A process of a federation with a fault: the real program, under an `Injector`.

fork server: tests.faults.role ROLE VOLUME CONTROL FAULT PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from fedsilo.files import durable
from tests.faults.fault import Fault
from tests.faults.injector import Control, Injector
from tests.faults.page_cache import PageCache

NO_FAULT = "-"

PAUSES = {
    "fedsilo.files.full_disk": {"FULL_DISK_SECONDS": 0.1},
    "fedsilo_aggregator.rounds": {"FULL_DISK_SECONDS": 0.1, "TICK_SECONDS": 0.05},
    "fedsilo_agent.guard.client": {"FIRST_RETRY_SECONDS": 0.02, "LAST_RETRY_SECONDS": 0.1},
    "fedsilo_agent.guard.drops": {"REPAIR_SECONDS": 5.0},
    "fedsilo_agent.trainer.inbox": {"REPAIR_SECONDS": 5.0},
}
"""Shorter pauses than in earnest: thousands of runs wait for them, and none of them decides anything."""


def main(arguments: list[str]) -> int:
    """Run a role's program with its fault; the program's exit code."""
    role, volume, directory, text, program, *rest = arguments
    control = Control(Path(directory))
    control.pid(role).write_text(str(os.getpid()))
    for name, values in PAUSES.items():
        paused = import_module(name)
        for constant, seconds in values.items():
            assert hasattr(paused, constant), f"{name}.{constant}"
            setattr(paused, constant, seconds)
    fault = None if text == NO_FAULT else Fault.from_json(text)
    record = control.record(role.partition(" ")[0])
    cache = PageCache(Path(volume), record) if record.exists() else None
    durable.intercept = Injector(role, Path(volume), control, fault, cache)
    module: Any = import_module(program)
    code: int = module.main(rest)
    return code
