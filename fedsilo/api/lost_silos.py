"""How it is said, everywhere in the same words, that a job has ended with fewer silos than it began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.api.conditions import AgentPhase, SiloState
from fedsilo.api.text import comma_separated, count_text


def lost_silos_text(silos: Sequence[Mapping[str, Any]]) -> str | None:
    """What the silos of a status say once the job is over: `ended with 2 of 3 silos, without south`; None where none is
    missing.

    :param silos: name and state of each that the job began with; those that it began without do not count.
    """
    began = [silo for silo in silos if silo.get("phase") != AgentPhase.LEFT_OUT]
    return ended_without(
        [silo["name"] for silo in began if silo.get("state") == SiloState.FAILED], len(began)
    )


def ended_without(lost: Sequence[str], began: int) -> str | None:
    """The words for the silos of these names, out of so many; None where there are none."""
    if not lost:
        return None
    return f"ended with {began - len(lost)} of {count_text(began, 'silo')}, without {comma_separated(lost)}"
