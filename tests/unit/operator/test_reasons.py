"""The table of reasons that people look up is that of the code."""

from __future__ import annotations

import re

from fedsilo import errors
from fedsilo_operator.reasons import Reason
from tests.paths import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    page = (ROOT / "docs" / "operator.md").read_text()
    _, _, section = page.partition("\n## Reasons\n")
    return ROW.findall(section.partition("\n## ")[0])


def test_every_reason_is_explained_once_and_in_order() -> None:
    assert [name for name, _, _ in rows()] == [str(reason) for reason in Reason]


def test_every_reason_has_a_meaning_and_a_remedy() -> None:
    assert all(meaning.strip() and remedy.strip() for _, meaning, remedy in rows())


def test_a_process_that_ends_with_one_of_our_errors_has_a_reason_of_the_table() -> None:
    ours = [found for found in vars(errors).values() if isinstance(found, type)]
    reasons = {error.reason for error in ours if issubclass(error, errors.FedsiloError)}
    of_commands = {errors.ProvenanceInvalid.reason, errors.ImportNotAllowed.reason}
    assert reasons - of_commands <= set(Reason), (
        "processes of a job verify no provenance, and run what it names"
    )
