"""One table of cases for a cluster and for a machine: whatever happens to a part, both say and do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.silo.agent.component import GUARD, TRAINER, TRAINER_EXIT_SECONDS
from fedsilo_operator.silo.component import GUARD_END_SECONDS
from tests.unit.silo.agent.places import PLACES, Cluster, Machine, Place, without_words

Step = tuple[Any, ...]
"""Name of something that happens, and with what."""

RESUME, SUSPEND, BEGIN, STOP = ("suspend", False), ("suspend", True), ("begin",), ("stop",)
STARTED_MOMENTS: tuple[tuple[Step, ...], ...] = ((), (RESUME,), (BEGIN,))
BOTH_PARTS = {GUARD, TRAINER}
DATED_TIME = "2026-03-01T12:10:00Z"


@dataclass(frozen=True)
class Case:
    """What happens to a part, and what follows from it in any place.

    :param moments: what happens between one look at the part and the next.
    :param admitted: status and reason of the condition `Admitted`.
    :param ready: status and reason of the condition `Ready`.
    :param end: type and reason of the condition that ends the part, or the type alone where both have one name.
    :param own_words: whether a place says in words of its own what it is about.
    """

    moments: tuple[tuple[Step, ...], ...]
    phase: str
    admitted: str
    ready: str
    end: str = ""
    runs: frozenset[str] | set[str] = frozenset()
    own_words: bool = False


def moments_after(*moments: tuple[Step, ...]) -> tuple[tuple[Step, ...], ...]:
    """What happens to a part that runs."""
    return (*STARTED_MOMENTS, *moments)


ADMITTED = "True Admitted"
CASES = {
    "asked": Case(((),), "Admitted", ADMITTED, "False Suspended"),
    "refused": Case(
        ((("policy", {"methods": ["creff"]}),),), "Refused", "False PolicyRefused", "False Admitting"
    ),
    "refused for several reasons": Case(
        ((("policy", {"methods": ["creff"], "maxRounds": 1, "manualApproval": True}),),),
        "Refused",
        "False PolicyRefused",
        "False Admitting",
    ),
    "awaits a person": Case(
        ((("policy", {"manualApproval": True}),),),
        "ApprovalPending",
        "False ApprovalPending",
        "False Admitting",
    ),
    "before its first day": Case(
        ((("policy", {"notBefore": DATED_TIME}),),), "Refused", "False PolicyRefused", "False Admitting"
    ),
    "on its first day": Case(
        ((("policy", {"notBefore": DATED_TIME}),), (("wait", 600),)), "Admitted", ADMITTED, "False Suspended"
    ),
    "of another version": Case(
        ((("understand", False),),), "Pending", "Unknown Unreadable", "False Admitting", own_words=True
    ),
    "starts": Case(((), (RESUME,)), "Starting", ADMITTED, "False Starting", runs=BOTH_PARTS),
    "starts at once": Case(((RESUME,),), "Starting", ADMITTED, "False Starting", runs=BOTH_PARTS),
    "runs": Case(STARTED_MOMENTS, "Running", ADMITTED, "True Running", runs=BOTH_PARTS),
    "runs for a day": Case(
        moments_after((("wait", 86400),)), "Running", ADMITTED, "True Running", runs=BOTH_PARTS
    ),
    "is being suspended": Case(moments_after((SUSPEND,)), "Suspended", ADMITTED, "False Suspended"),
    "is suspended": Case(moments_after((SUSPEND,), (STOP,)), "Suspended", ADMITTED, "False Suspended"),
    "goes on": Case(
        moments_after((SUSPEND,), (STOP,), (RESUME,), (BEGIN,)),
        "Running",
        ADMITTED,
        "True Running",
        runs=BOTH_PARTS,
    ),
    "another policy": Case(
        moments_after((("policy", {"methods": ["creff"]}),)),
        "Refused",
        "False PolicyRefused",
        "False Admitting",
    ),
    "the policy as before": Case(
        moments_after((("policy", {"methods": ["creff"]}),), (STOP,), (("policy", {}),)),
        "Starting",
        ADMITTED,
        "False Starting",
        runs=BOTH_PARTS,
    ),
    "another configuration": Case(
        moments_after((("change_files",),)), "Refused", "False TrustBroken", "False Admitting", own_words=True
    ),
    "runs and is of another version": Case(
        moments_after((("understand", False),)),
        "Running",
        "Unknown Unreadable",
        "True Running",
        runs=BOTH_PARTS,
        own_words=True,
    ),
    "of another version and suspended": Case(
        moments_after((("understand", False),), (SUSPEND,), (STOP,)),
        "Suspended",
        "Unknown Unreadable",
        "False Suspended",
        own_words=True,
    ),
    "the guard is done and the trainer writes": Case(
        moments_after((("end", GUARD, 0),)), "Running", ADMITTED, "True Running", runs={TRAINER}
    ),
    "the trainer writes while the job is over": Case(
        moments_after((("end", GUARD, 0), SUSPEND)), "Suspended", ADMITTED, "False Suspended", runs={TRAINER}
    ),
    "the trainer writes although the policy forbids the job": Case(
        moments_after((("end", GUARD, 0), ("policy", {"methods": ["creff"]}))),
        "Refused",
        "False PolicyRefused",
        "False Admitting",
        runs={TRAINER},
    ),
    "the trainer has written": Case(
        moments_after((("end", GUARD, 0),), (("end", TRAINER, 0),)),
        "Finished",
        ADMITTED,
        "False Finished",
        "Finished",
    ),
    "the trainer does not end": Case(
        moments_after((("end", GUARD, 0),), (("wait", TRAINER_EXIT_SECONDS),)),
        "Running",
        ADMITTED,
        "True Running",
    ),
    "the trainer was ended": Case(
        moments_after((("end", GUARD, 0),), (("wait", TRAINER_EXIT_SECONDS),), (STOP,)),
        "Finished",
        ADMITTED,
        "False Finished",
        "Finished",
    ),
    "finished on the day after the last": Case(
        moments_after(
            (("policy", {"notAfter": DATED_TIME}), ("end", GUARD, 0), ("end", TRAINER, 0), ("wait", 86400))
        ),
        "Finished",
        "False PolicyRefused",
        "False Finished",
        "Finished",
    ),
    "finished for good": Case(
        moments_after(
            (("end", GUARD, 0), ("end", TRAINER, 0)),
            (SUSPEND, ("policy", {"methods": ["creff"]}), ("wait", 600)),
        ),
        "Finished",
        ADMITTED,
        "False Finished",
        "Finished",
    ),
    "the trainer ends before the job is over": Case(
        moments_after((("wait", 600),), (("end", TRAINER, 0), ("wait", GUARD_END_SECONDS))),
        "Failed",
        ADMITTED,
        "False TrainerLost",
        "Failed TrainerLost",
        runs={GUARD},
    ),
    "the data are wrong": Case(
        moments_after((("end", TRAINER, 3),)),
        "Failed",
        ADMITTED,
        "False DataInvalid",
        "Failed DataInvalid",
        runs={GUARD},
        own_words=True,
    ),
    "the trainer crashes too often": Case(
        moments_after((("end", TRAINER, 1),)),
        "Failed",
        ADMITTED,
        "False BackoffLimitExceeded",
        "Failed BackoffLimitExceeded",
        runs={GUARD},
        own_words=True,
    ),
    "the guard fails": Case(
        moments_after((("end", GUARD, 5),)),
        "Failed",
        ADMITTED,
        "False PolicyRefused",
        "Failed PolicyRefused",
        own_words=True,
    ),
    "both fail": Case(
        moments_after((("end", GUARD, 5), ("end", TRAINER, 3))),
        "Failed",
        ADMITTED,
        "False DataInvalid",
        "Failed DataInvalid",
        own_words=True,
    ),
    "failed, and the job is over": Case(
        moments_after((("end", TRAINER, 3),), (SUSPEND,), (STOP,)),
        "Failed",
        ADMITTED,
        "False DataInvalid",
        "Failed DataInvalid",
        own_words=True,
    ),
    "failed, and of another version since": Case(
        moments_after((("end", TRAINER, 3),), (("understand", False),)),
        "Failed",
        ADMITTED,
        "False DataInvalid",
        "Failed DataInvalid",
        runs={GUARD},
        own_words=True,
    ),
}


def go_through(place: Place, case: Case) -> list[tuple[Object, set[str]]]:
    """What is said and what is to run, at each moment."""
    found = []
    for moment in case.moments:
        for name, *arguments in moment:
            getattr(place, name)(*arguments)
        place.settle()
        found.append((place.status(), place.runs()))
    return found


def stated_conditions(status: Object) -> dict[str, str]:
    return {one["type"]: f"{one['status']} {one['reason']}" for one in status["conditions"]}


@pytest.mark.parametrize("make", PLACES)
@pytest.mark.parametrize("name", CASES)
def test_what_follows_in_any_place(name: str, make: Callable[[], Place]) -> None:
    case = CASES[name]
    status, runs = go_through(make(), case)[-1]
    expected = {"Admitted": case.admitted, "Ready": case.ready}
    if case.end:
        end, _, reason = case.end.partition(" ")
        expected[end] = f"True {reason or end}"
    assert (status["phase"], stated_conditions(status)) == (case.phase, expected)
    assert runs == case.runs


@pytest.mark.parametrize("name", CASES)
def test_both_places_say_the_same_field_by_field_at_every_moment(name: str) -> None:
    case = CASES[name]
    on_cluster, on_machine = go_through(Cluster(), case), go_through(Machine(), case)
    for (one, ones), (other, others) in zip(on_cluster, on_machine, strict=True):
        if case.own_words:
            one, other = without_words(one), without_words(other)
        assert one == other
        assert ones == others
