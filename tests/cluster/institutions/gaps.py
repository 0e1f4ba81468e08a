"""`fedsilo run` on this machine with silos that miss some rounds: their guards are stopped meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from fedsilo.api.observed import Object
from tests.integration.local import runs

Gaps = Mapping[str, Sequence[int]]
"""Silo -> rounds in which it does not take part."""


def run_with_gaps(objects: Sequence[Object], folder: Path, gaps: Gaps, rounds: int) -> Object:
    """The federation's last word, with model and metrics. A round with a gap takes as long as its deadline."""
    manifest, workdir = folder / "manifest.yaml", folder / "run"
    manifest.write_text(yaml.safe_dump_all(objects))
    process = runs.start(manifest, workdir)
    try:
        # A guard that is stopped before it has told of its data would keep round 1 from beginning.
        runs.wait_until(lambda: _awaits_some(workdir), "round 1 to begin")
        for number in range(1, rounds + 1):
            runs.wait_until(lambda done=number - 1: len(runs.history(workdir)) >= done, f"round {number}")  # type: ignore[misc]
            for silo, missed in gaps.items():
                guard = runs.pids(workdir).get(f"{silo} guard")
                if number not in missed and guard is None:
                    continue  # after its gaps a run may be over before it is looked at
                assert guard is not None
                os.kill(guard, signal.SIGSTOP if number in missed else signal.SIGCONT)
    finally:
        ended = runs.end(process, workdir)
    assert ended.code == 0, ended.err
    missing = {silo: [record["round"] for record in ended.history if _named(silo, record)] for silo in gaps}
    assert missing == {silo: list(missed) for silo, missed in gaps.items()}
    return ended.document


def _awaits_some(workdir: Path) -> bool:
    path = workdir / "aggregator" / "status.json"
    return path.exists() and any(
        silo.get("state") == "Awaited" for silo in json.loads(path.read_text())["silos"]
    )


def _named(silo: str, record: Object) -> bool:
    return any(name.rsplit("/", 1)[1] == silo for name in record["missing"])
