"""Examples in what differential privacy adds no noise to: a counter, a mask and a table of integers in the model's
buffers, the exact number of examples, and losses.

By: a hostile trainer of a job with differential privacy of examples, which writes into the drop.

Must: buffers that are not as the task handed them out are refused, with their names; number and losses do not leave,
and neither do names of classes that the job does not list.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import numpy as np

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from fedsilo.wire import Tree, open_update
from tests.integration.service.scripted import TREE

RUNS_ONCE = True

PATIENTS = np.frombuffer(b"Ada Lovelace, 36, positive".ljust(32), np.int64)

MODEL: Tree = TREE | {
    "encoder.seen": np.array(0),
    "encoder.active": np.ones(6, np.bool_),
    "encoder.table": np.zeros(4, np.int64),
}

JOB: dict[str, Any] = {
    "privacy": {"differentialPrivacy": {"unit": "example", "epsilon": 3, "delta": 0.001}},
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}


def attack(target: LiveGuard) -> None:
    with closing(LiveGuard(target.folder / "private", tree=MODEL, **JOB)) as private:
        aggregator = private.aggregator
        signature = aggregator.volume.drop / "signature.json"
        named = json.loads(signature.read_text()) | {"schema": {"classes": ["Ada", "Bob", "Cleo"]}}
        signature.write_text(json.dumps(named))
        for name, value in (
            ("encoder.seen", np.array(41)),
            ("encoder.active", np.array([True, False, True, True, False, True])),
            ("encoder.table", PATIENTS),
        ):
            task = private.name()
            aggregator.drop(task, {**MODEL, name: value})
            private.expect_drop_refused(task, f"block {name}: is not as the task handed it out")
        task = private.name()
        aggregator.drop(task, metrics={"loss": 0.36})
        aggregator.offer(aggregator.task(task))
        aggregator.wait_acknowledged(task)
        sent = private.folder / "sent"
        sent.write_bytes(aggregator.uploads[task][0])
        with open_update(sent) as update:
            header = update.header
        # Announcements are posted as reports are.
        announced = next(said for path, said in aggregator.failures.items() if path.startswith("schema"))
        if (header.samples, header.metrics, announced) != (0, {}, {}):
            raise NotRefusedError(
                f"the silo stated {header.samples} examples, {header.metrics} and {announced}"
            )
        private.note("figures and names withheld")
        target.answers.update(private.answers)
