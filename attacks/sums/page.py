"""The page of what was tried against secure sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attacks.sums.attempts import Finding
from attacks.sums.guards import CLASSES, FEATURE, INPUTS
from benchmarks.tables.results import machine

PAGE = Path(__file__).parents[2] / "docs" / "results" / "attacked-sums.md"

HEAD = """# Secure sums under a hostile aggregator

`python -m attacks.sums` runs a job with secure aggregation over 3 to 10 silos with their real guards, and an
aggregator that does as it likes, once for each line and number of silos. It is after the update of the first silo, and
knows the answers of all others to a model that it has made. `correlation` is the largest, over all numbers of silos, of
anything that it can compute with the first silo's change of the model, or with its confusion matrix; `exact` says
whether the samples and all metrics of that silo came out. Five standard deviations of the correlation of random
vectors are {model:.2f} (of a model) and {scores:.2f} (of scores). One sum by itself is what the aggregator is meant to
learn, so it does not count.

"""

TABLE = """| `minSilos` | tried | correlation | exact | what guards said |
|---|---|---|---|---|
"""

TAIL = """
With the default, all silos, every sum is over the same silos, and none of these shows anything of a single one. A job
that permits sums over fewer is open to the last digit where an aggregator hands out nearly the same model twice: a
guard compares digests, and cannot know which other models have the same answers. There only noise bounds what is
learned
([differential privacy](../differential-privacy.md)). `fedsilo validate` and the commands by which an institution
approves say which of the two a job is.

Machine: {machine}.
"""


@dataclass(frozen=True)
class Row:
    """What one try has shown.

    :param least: answers that a round needs, a phrase.
    :param findings: number of silos -> what was seen.
    """

    attempt: str
    least: str
    findings: Mapping[int, Finding]

    @property
    def correlation(self) -> float:
        """The largest over all numbers of silos."""
        return max((found.correlation for found in self.findings.values()), default=0.0)

    @property
    def exact(self) -> bool:
        """Whether samples and metrics came out anywhere."""
        return any(found.exact for found in self.findings.values())


def chance(attempt: str) -> float:
    """Correlation that random vectors stay below: five standard deviations, 1 / sqrt(n) each."""
    numbers = CLASSES * CLASSES if attempt.startswith("scores") else FEATURE * (INPUTS + CLASSES)
    return 5 / math.sqrt(numbers)


def line(row: Row) -> str:
    """The row of the table."""
    said = {text for found in row.findings.values() for text in found.refusals}
    quoted = "; ".join(sorted({_without_numbers(text) for text in said})) or "nothing"
    exact = "yes" if row.exact else "no"
    return f"| {row.least} | {row.attempt} | {row.correlation:.3f} | {exact} | {quoted} |"


def page(rows: list[Row]) -> str:
    """The whole page on attempts against secure sums, in Markdown."""
    head = HEAD.format(model=chance("the model"), scores=chance("scores"))
    return (
        head
        + TABLE
        + "\n".join(map(line, rows))
        + "\n"
        + TAIL.format(machine=", ".join(f"{name} {value}" for name, value in machine().items()))
    )


def _without_numbers(text: str) -> str:
    """The refusal with K for numbers of silos, so that it is one text for all of them."""
    return " ".join("K" if word.isdigit() else word for word in text.split())
