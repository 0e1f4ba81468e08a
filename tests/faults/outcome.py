"""What a run has left, to be compared with the undisturbed one, byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsilo.errors import FedsiloError
from fedsilo.local.workdir import RunDirectory
from fedsilo_agent.guard.audit import verify
from tests.faults import fault as kinds
from tests.faults.fault import Fault
from tests.faults.manifests import silos_in
from tests.faults.trial import EndedRun

SAME, NAMED_ERROR, NOT_REACHED = "same", "named error", "not reached"
"""What may come of a fault: the same model and states, an error that names the damaged file, or no fault at all."""

Snapshot = Mapping[str, Any]


class Violation(Exception):
    """A fault had an effect that it must not have."""


def judge(fault: Fault, ended: EndedRun, undisturbed: Snapshot) -> str:
    """What came of a fault: one of the three above.

    :raises Violation: when it is anything else.
    """
    logs = _logs(ended.workdir)
    if "Traceback" in logs:
        raise Violation(f"a traceback: {logs[logs.index('Traceback') :][-1500:]}")
    try:
        _require_same(ended, undisturbed, logs)
    except (Violation, FedsiloError):
        model = ended.workdir.aggregator / "model.safetensors"
        named = any(_is_named(path, logs) for path in ended.flipped)
        if named and (not model.exists() or _digest(model) == undisturbed["model.safetensors"]):
            return NAMED_ERROR
        raise
    return SAME if ended.fired or fault.kind == kinds.NETWORK_CUT else NOT_REACHED


def _require_same(ended: EndedRun, undisturbed: Snapshot, logs: str) -> None:
    if ended.trouble is not None:
        raise Violation(ended.trouble)
    failed = {role: code for role, code in ended.codes.items() if code not in (0, None)}
    if failed:
        raise Violation(f"exit codes {failed}: {_last_errors(logs)}")
    found = snapshot(ended.workdir)
    for name, expected in undisturbed.items():
        if name.endswith("acknowledged") and ended.codes[f"{name.partition(':')[0]} guard"] is None:
            # The aggregator had ended before this guard was there again: of its last update it has learnt no more.
            expected = dict(list(expected.items())[: max(len(found[name]), len(expected) - 1)])
        if found.get(name) != expected:
            raise Violation(f"{name}: {_json_text(found.get(name))} and not {_json_text(expected)}")


def snapshot(workdir: RunDirectory) -> Snapshot:
    """All that must be the same, by name.

    Masks are drawn anew in every run: where the aggregator sees sums only, updates differ, and that there is one for
    each task is what must be the same.

    :raises Violation: when there is no model, or a log contradicts itself.
    """
    aggregator = workdir.aggregator
    if not (aggregator / "model.json").exists():
        raise Violation("there is no model")
    history = [json.loads(line) for line in (aggregator / "history.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {
        "model.safetensors": _digest(aggregator / "model.safetensors"),
        "model.json": json.loads((aggregator / "model.json").read_text()),
        "provenance.json": _digest(aggregator / "provenance.json"),
        "history": [{name: value for name, value in line.items() if name != "seconds"} for line in history],
        "blobs": sorted(path.name for path in (aggregator / "blobs").iterdir()),
        "open exchanges": sorted(path.name for path in (aggregator / "open").iterdir()),
    }
    for silo in silos_in(workdir):
        found |= {f"{silo}: {name}": value for name, value in _silo(workdir, silo).items()}
    return _counted_updates(found) if "summed" in history[0] else found


def _counted_updates(found: dict[str, Any]) -> dict[str, Any]:
    """What a run has left, with numbers of updates in place of their digests."""
    del found["provenance.json"], found["model.json"]["updates"]
    for line in found["history"]:
        line["updates"] = sorted(line["updates"])
    for name, value in found.items():
        if name.endswith(("departures", "acknowledged")):
            found[name] = {task: len(digests) for task, digests in value.items()}
    return found


def _silo(workdir: RunDirectory, silo: str) -> dict[str, Any]:
    volume = workdir.volume(silo)
    log = volume.audit / "log.jsonl"
    verify(log)
    digests: dict[str, dict[str, set[str]]] = {
        "departure": defaultdict(set),
        "acknowledged": defaultdict(set),
    }
    last = ""
    for line in map(json.loads, log.read_text().splitlines()):
        if line["event"] in digests:
            digests[line["event"]][line["task"]].add(line["digest"])
            last = line["task"]
    states = {path.name: _files(path) for path in volume.state.iterdir() if path.is_dir()}
    return {
        "departures": {task: sorted(found) for task, found in digests["departure"].items()},
        "acknowledged": {task: sorted(found) for task, found in digests["acknowledged"].items()},
        "private state": states.get(last),
        "personal model": {path.name: _digest(path) for path in sorted(volume.state.glob("personal.*"))},
    }


def _files(directory: Path) -> dict[str, str]:
    return {path.name: _digest(path) for path in sorted(directory.iterdir()) if path.suffix != ".tmp"}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _logs(workdir: RunDirectory) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(workdir.logs.glob("*.log")))


def _is_named(path: Path, logs: str) -> bool:
    """Whether an error line names the file and says what to do."""
    return any(
        path.name in line
        and "; " in line
        and ("FileDamaged" in line or "AuditBroken" in line or "damaged" in line)
        for line in logs.splitlines()
    )


def _last_errors(logs: str) -> str:
    return " | ".join([line for line in logs.splitlines() if "ERROR" in line or '"error"' in line][-4:])


def _json_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)[:400]
