"""The page with a campaign's figures."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence

from tests.faults.campaign import Attempt, table
from tests.faults.outcome import NOT_REACHED

PAGE = """# Faults at every durable step

What a federation of real processes does when a disk, a process, a clock or the network fails. Aggregator, guards and
trainers run over HTTPS with two silos and two rounds; the first run of each method notes every durable step of every
process, and each further run has one fault at one of these steps, chosen at random. What died is started again as
`fedsilo run` does. Then the model, its description, the history, every silo's signed and acknowledged updates, its
private state and its own model must be those of the undisturbed run, byte for byte, or, where a bit was flipped, an
error must name the file and say what to do.

`python -m tests.faults --count {count} --seed {seed}`: {injections} faults on {cores} cores; the median run with its
check takes {seconds:.1f} s.

{table}

"Not reached" are faults whose run did not come by the step, because processes that run side by side do not always
take the same ones. [CONTRIBUTING.md](../../CONTRIBUTING.md#tests) says how to repeat a single fault.
"""


def report(attempts: Sequence[Attempt], methods: Sequence[str], count: int, seed: int) -> str:
    """The page of a campaign."""
    return PAGE.format(
        count=count,
        seed=seed,
        injections=sum(attempt.outcome != NOT_REACHED for attempt in attempts),
        seconds=statistics.median(attempt.seconds for attempt in attempts),
        cores=os.cpu_count(),
        table=table(attempts, methods),
    )
