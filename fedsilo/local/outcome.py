"""How guard and trainer of a volume ended: what is left of that for the other one, and what a new start removes."""

from __future__ import annotations

import os

from fedsilo.files.durable import remove
from fedsilo.files.json_files import read_json, write_json
from fedsilo.local.child_processes import ChildProcess
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH


def clear_outcome(volume: Volume) -> None:
    """Remove what says that an earlier run is over: failures are tried again, and its `finish` task no longer holds.

    Otherwise guard or trainer, whichever starts first, would take it for current, and so would the guard what the
    trainer has announced of data that were mended since.
    """
    for path in (volume.task, volume.drop / "signature.json"):
        if os.path.lexists(path):
            remove(path)
    clear_failures(volume)


def clear_failures(volume: Volume) -> None:
    """Remove why an earlier guard or trainer failed: it is tried again."""
    for path in volume.drop.rglob("failed.json"):
        remove(path)


def report_lost_trainer(trainer: ChildProcess, volume: Volume) -> None:
    """Leave in the drop why a trainer that has ended for good will not answer, unless it has left that itself.

    So its guard reports that instead of keeping silent until the round's deadline.
    """
    failed = volume.drop / "failed.json"
    if not failed.exists():
        write_json(failed, {"reason": "TrainerLost", "message": _last_words(trainer, "trainer")})


def lost_guard(guard: ChildProcess) -> dict[str, str]:
    """Reason and message of a guard that has ended for good, for the aggregator, which hears nothing of its silo."""
    reason, message = guard.cause or ("GuardLost", _last_words(guard, "guard"))
    return {"reason": reason, "message": message}


def is_dismissed(volume: Volume) -> bool:
    """Whether the silo's guard has said that the job is over."""
    task = read_json(volume.task)
    return isinstance(task, dict) and task.get("step") == FINISH


def _last_words(process: ChildProcess, role: str) -> str:
    """What is reported of a guard or trainer that has ended for good."""
    if process.exit_code == 0:
        return (
            f"the {role} ended with exit code 0 before the job was over; its loader, model or method must not end "
            "the process, see its log"
        )
    crashed = f"crashed {process.crashes} times, last" if process.crashes > 1 else "ended"
    return f"the {role} {crashed} with exit code {process.exit_code}; see its log"
