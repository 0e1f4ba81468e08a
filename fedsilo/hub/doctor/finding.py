"""What a check has found, as one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedsilo.wire.problems import one_line


class FindingState(StrEnum):
    """How a check ended; as it is printed."""

    HOLDS = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    :param check: what, in a word.
    :param text: what holds; or what does not and what to do; or what has to hold first.
    """

    check: str
    state: FindingState
    text: str


def holds(check: str, text: str) -> Finding:
    """What was checked is as it must be."""
    return Finding(check, FindingState.HOLDS, text)


def failed_finding(check: str, text: str) -> Finding:
    """What was checked is not as it must be."""
    return Finding(check, FindingState.FAILED, text)


def skipped_finding(check: str, text: str) -> Finding:
    """What could not be checked, or does not apply here."""
    return Finding(check, FindingState.SKIPPED, text)


def report(findings: Sequence[Finding]) -> str:
    """One line for each, and one that counts them."""
    width = max(len(finding.check) for finding in findings)
    lines = [f"{found.state:<7} {found.check:<{width}} {one_line(found.text)}" for found in findings]
    return "\n".join([*lines, _sum(findings)])


def has_failed(findings: Sequence[Finding]) -> bool:
    """Whether any of these findings is a check that failed."""
    return any(finding.state is FindingState.FAILED for finding in findings)


def _sum(findings: Sequence[Finding]) -> str:
    count = [sum(finding.state is state for finding in findings) for state in FindingState]
    return f"{len(findings)} checks: {count[0]} ok, {count[1]} failed, {count[2]} skipped"
