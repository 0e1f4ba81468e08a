"""Tensors that are replaced after the guard has checked and signed them, while the aggregator says that its disk is
full.

By: a hostile trainer, which writes into the drop.

Must: what is sent again is what was checked.
"""

from __future__ import annotations

import numpy as np

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from fedsilo.wire import write_tensors
from tests.integration.service.scripted import DISK_FULL_ANSWER, TREE
from tests.integration.service.site import wait_until

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    aggregator, task = target.aggregator, target.name()
    drop = aggregator.drop(task)
    aggregator.outcomes.append(DISK_FULL_ANSWER)
    aggregator.offer(aggregator.task(task))
    wait_until(lambda: aggregator.uploads[task], "the first try")
    other = {**TREE, "classifier.weight": np.full((3, 6), 99, np.float32)}
    write_tensors(other, drop / "tensors")
    aggregator.wait_acknowledged(task)
    first, second = aggregator.uploads[task]
    if first != second:
        raise NotRefusedError("what was sent is not what was checked")
    target.note("the same bytes")
