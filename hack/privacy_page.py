"""The generated part of docs/privacy.md: which promises go with each other, with the other features and with methods.

python -m hack.privacy_page docs/privacy.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.step import NAMED_SCORES
from fedsilo.transforms.plan import JobPlan
from hack.combination_pages import Reasons, pairs, table_head, table_row
from hack.combinations import FEATURES, Feature, are_one_field, method_of, refusals

BEGIN = "<!-- Below this line, down to the next such comment: `make reference`. -->"
END = "<!-- Above this line: `make reference`. -->"

PLACES = ("aggregation.secure", "privacy.differentialPrivacy", "aggregation.rule")
"""Fields of a job that ask for a promise."""

PROMISES = tuple(feature for feature in FEATURES if feature.place.startswith(PLACES))


def main(argv: list[str] | None = None) -> int:
    """Rewrite the generated part of a page."""
    (name,) = sys.argv[1:] if argv is None else argv
    page = Path(name)
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}")
    return 0


def tables() -> str:
    """Each feature with each promise, and the built-in methods that each promise goes with."""
    return "\n" + "\n".join([*_features(), "", *_methods()]) + "\n"


def _features() -> Iterator[str]:
    reasons = Reasons()
    list(pairs(reasons))  # which numbers the reasons as docs/combinations.md does
    yield from table_head("", *(promise.name for promise in PROMISES))
    for feature in FEATURES:
        label = f"{feature.name} (`{feature.place}`)"
        yield table_row(label, *(_cell(feature, promise, reasons) for promise in PROMISES))
    yield table_row("scores by silo (the Silo's `policy.scores`)", *map(_named_scores, PROMISES))


def _named_scores(promise: Feature) -> str:
    """Whether a job with a promise has scores that a silo could permit by name, by what its silos declare."""
    names = JobPlan(method_of(promise)).step(EVALUATE).names
    return "if all silos permit it" if NAMED_SCORES in names else "none"


def _cell(feature: Feature, promise: Feature, reasons: Reasons) -> str:
    if feature is promise or are_one_field(feature, promise):
        return "–"
    found = refusals(*sorted((feature, promise), key=FEATURES.index))
    return f"[no: {reasons.cell(found)}](combinations.md#reasons)" if found else "yes"


def _methods() -> Iterator[str]:
    yield from table_head("promise", "built-in methods that it goes with")
    built_in = [name for name in registry.names() if registry.package_of(name) is None]
    for promise in PROMISES:
        yield table_row(
            promise.name, ", ".join(name for name in built_in if not refusals(promise, method=name))
        )


if __name__ == "__main__":
    sys.exit(main())
