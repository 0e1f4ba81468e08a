"""Silos that will answer no task any more, and cannot say so: whoever started their guards says it in a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import FileDamaged
from fedsilo.files.json_files import read_json

log = logging.getLogger("fedsilo.aggregator")


@dataclass
class LostSilosFile:
    """A JSON file that says of silos, `namespace/name`, with which `reason` and `message` their guards ended.

    :param path: None where nobody writes one, as on a cluster, whose operator sees how pods end.
    """

    path: Path | None
    _logged: frozenset[str] = field(default=frozenset(), init=False)

    def fail_tasks(self, engine: RoundEngine) -> bool:
        """Fail the open tasks of the silos in it, as their guards would have; whether there were any.

        :raises OSError: when the disk is full.
        """
        current, lost, failed = engine.current_exchange, self.read(), False
        if not lost or current is None or engine.ended:
            return False
        for silo in set(lost) & set(current.round.awaited_silos):
            reason, message = lost[silo]["reason"], lost[silo]["message"]
            if silo not in self._logged:
                log.warning("silo %s is lost: %s: %s", silo, reason, message)
                self._logged |= {silo}
            failed |= engine.fail(silo, current.tasks[silo].id, reason, message)
        return failed

    def read(self) -> Mapping[str, Mapping[str, str]]:
        """Silos that are lost by now, each with its cause."""
        try:
            return (read_json(self.path) if self.path is not None else None) or {}
        except FileDamaged:
            return {}  # it is replaced whole, so that the next look finds it
