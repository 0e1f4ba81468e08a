"""The generated part of docs/combinations.md: what is refused of small jobs that have two features, and why.

python -m hack.combination_pages docs/combinations.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase

from fedsilo.api.faults import Finding
from fedsilo.methods import registry
from hack.combinations import FEATURES, are_one_field, refusals
from hack.crd_pairs import pair_rules

MARKER = "<!-- Below this line: `make reference`. -->"

LETTERS = ascii_uppercase[: len(FEATURES)]


class Reasons:
    """Why features do not go together, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def cell(self, findings: Sequence[Finding], method: str = "") -> str:
        """Numbers of these reasons.

        :param method: whose name is left out of them.
        """
        reasons = [(path, _without_name(problem, method)) for path, _, problem, _ in findings]
        numbers = [self._numbers.setdefault(reason, len(self._numbers) + 1) for reason in reasons]
        return ", ".join(map(str, dict.fromkeys(numbers)))

    def table(self) -> Iterator[str]:
        """A row for each, and whether an API server knows it."""
        yield from table_head("", "field", "is refused because it", "at `kubectl apply`")
        for (path, problem), number in self._numbers.items():
            known = any(
                path == f"spec{rule.field}" and rule.text.startswith(f"{problem}; ") for rule in pair_rules()
            )
            yield table_row(str(number), f"`{path.removeprefix('spec.')}`", problem, "yes" if known else "")


def main(argv: list[str] | None = None) -> int:
    """Rewrite the generated part of a page."""
    (name,) = sys.argv[1:] if argv is None else argv
    page = Path(name)
    page.write_text(page.read_text().partition(MARKER)[0] + MARKER + "\n" + tables())
    return 0


def tables() -> str:
    """The features, each with each, each with each built-in method, and the reasons."""
    reasons = Reasons()
    sections = {
        "Features": list(_features()),
        "Features with each other": list(pairs(reasons)),
        "Features with methods": list(_methods(reasons)),
        "Reasons": list(reasons.table()),
    }
    return "".join(f"\n## {title}\n\n" + "\n".join(rows) + "\n" for title, rows in sections.items())


def _features() -> Iterator[str]:
    yield from table_head("", "feature", "what a job writes")
    for feature, letter in zip(FEATURES, LETTERS, strict=True):
        yield table_row(letter, feature.name, f"`{feature.place}`")


def pairs(reasons: Reasons) -> Iterator[str]:
    """The table of features with each other, which numbers the reasons."""
    yield from table_head("", *LETTERS)
    for row, letter in zip(FEATURES, LETTERS, strict=True):
        cells = []
        for column in FEATURES:
            apart = row is column or are_one_field(row, column)
            cells.append("–" if apart else reasons.cell(refusals(*sorted((row, column), key=FEATURES.index))))
        yield table_row(f"**{letter}** {row.name}", *cells)


def _methods(reasons: Reasons) -> Iterator[str]:
    yield from table_head("", *LETTERS)
    for name in registry.names():
        if registry.package_of(name) is None:
            cells = [reasons.cell(refusals(feature, method=name), name) for feature in FEATURES]
            yield table_row(f"`{name}`", *cells)


def _without_name(problem: str, method: str) -> str:
    if not method:
        return problem
    return re.sub(rf"(?<![\w-])(method )?{re.escape(method)}(?![\w-])", "the method", problem)


def table_head(*cells: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield table_row(*cells)
    yield "|" + "---|" * len(cells)


def table_row(*cells: str) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
