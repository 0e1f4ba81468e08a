"""A job's state as conditions: while it is active, and at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis
from fedsilo.api.observed import condition, status_of
from fedsilo.api.text import count_text
from fedsilo.api.timestamps import timestamp
from fedsilo.process import version
from fedsilo_operator.job.checks import is_known, unverified_message
from fedsilo_operator.job.participants import Participant
from fedsilo_operator.job.state import JobState
from fedsilo_operator.messages import join_lines
from fedsilo_operator.objects import JOB
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.suspension import is_suspended

_AWAITED_REASONS: Mapping[str, int] = {Reason.APPROVAL_PENDING: 0, Reason.ADMITTING: 1}
"""What is merely awaited of a silo, what a person has to do first; any other objection goes before both."""


def active_conditions(state: JobState) -> Iterator[Condition]:
    """Conditions of an active job; those that concern the time before the start are not evaluated again after it."""
    if state.changed is not None:
        yield Condition.of(ConditionType.ACCEPTED, "False", state.changed)
        yield _settled_condition(state, ConditionType.ADMITTED) or _admitted_condition(state.participants, ())
    elif state.has_started:
        yield _settled_condition(state, ConditionType.ACCEPTED) or _accepted_condition(state)
        yield _settled_condition(state, ConditionType.ADMITTED) or _admitted_condition(state.participants, ())
    else:
        yield _accepted_condition(state)
        yield _admission(state)
    if state.started:
        yield _silos_ready(state)
        yield _running(state)
    yield from _outputs_delivered(state)
    if state.suspended:
        text = "spec.suspend is true; finished rounds are kept."
        yield Condition(ConditionType.SUSPENDED, "True", Reason.SUSPENDED, text)
    elif _earlier_condition(state, ConditionType.SUSPENDED):
        yield Condition(ConditionType.SUSPENDED, "False", Reason.RESUMED, "spec.suspend is false.")


def final_conditions(state: JobState, end: Condition) -> Iterator[Condition]:
    """The final conditions of a job say how it ended, what stopped with it, and what was true before."""
    never_ran = end.type == ConditionType.FAILED and not state.has_started
    if never_ran:
        yield Condition(ConditionType.ACCEPTED, "False", end.reason, end.message)
    elif state.changed is not None:
        yield Condition.of(ConditionType.ACCEPTED, "False", state.changed)
    else:
        yield from _repeated_conditions(state, ConditionType.ACCEPTED)
    yield from _repeated_conditions(state, ConditionType.ADMITTED)
    for name in (ConditionType.SILOS_READY, ConditionType.RUNNING, ConditionType.SUSPENDED):
        if _earlier_condition(state, name):
            yield Condition(name, "False", Reason.FINISHED, "The job is over.")
    yield from _outputs_delivered(state)
    yield end


def unreadable_conditions(state: JobState) -> Iterator[Condition]:
    """Conditions of a job that another version has started and that this one cannot read."""
    faults = " ".join(f"{line}." for line in state.faults)
    text = (
        f"Another version of the operator has started this job, and {version()} cannot read it: {faults} Its pods go on"
        " as they are, and no silo that is lost meanwhile is noticed. Run the version that started it, or a newer one."
    )
    yield Condition(ConditionType.ACCEPTED, "Unknown", Reason.UNREADABLE, text)
    yield from _repeated_conditions(
        state,
        ConditionType.ADMITTED,
        ConditionType.SILOS_READY,
        ConditionType.RUNNING,
        ConditionType.SUSPENDED,
        ConditionType.OUTPUTS_DELIVERED,
    )


def _accepted_condition(state: JobState) -> Condition:
    if state.blocker is not None:
        return Condition.of(ConditionType.ACCEPTED, "False", state.blocker)
    if state.job is not None and not is_known(state.job):
        return Condition(ConditionType.ACCEPTED, "Unknown", Reason.UNVERIFIED, unverified_message(state.job))
    return Condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, "The specification can be run.")


def _admission(state: JobState) -> Condition:
    """The silos' decisions before the start: all objections of all of them at once."""
    if state.starters:
        return _admitted_condition(state.starters, state.left_out)
    objections = [silo.objection for silo in state.candidates if silo.objection is not None]
    if objections:
        firm = min(objections, key=lambda one: _AWAITED_REASONS.get(one.reason, -1))
        message = join_lines([one.message for one in objections])
        return Condition(ConditionType.ADMITTED, "False", firm.reason, message)
    awaited = [silo for silo in state.candidates if not silo.admitted]
    whom = f"the decision of {join_lines([str(silo.ref) for silo in awaited], ', ')}" if awaited else "Silos"
    unheard = [silo.unheard.with_subject(f"Silo {silo.ref}") for silo in awaited if silo.unheard is not None]
    reason = unheard[0].reason if unheard else Reason.ADMITTING
    message = join_lines([f"Waiting for {whom}.", *(one.message for one in unheard)])
    return Condition(ConditionType.ADMITTED, "False", reason, message)


def _admitted_condition(starters: Sequence[Participant], left_out: Sequence[Participant]) -> Condition:
    names = join_lines([str(silo.ref) for silo in left_out], ", ")
    without = f"; it starts without {names}" if names else ""
    text = f"{count_text(len(starters), 'silo')} admitted the job{without}."
    return Condition(ConditionType.ADMITTED, "True", Reason.ADMITTED, text)


def _silos_ready(state: JobState) -> Condition:
    """How far the agents are after the start."""
    if state.suspended:
        return Condition(ConditionType.SILOS_READY, "False", Reason.SUSPENDED, "The job is suspended.")
    if state.gang.put_off:
        return Condition(ConditionType.SILOS_READY, "False", Reason.GANG_INCOMPLETE, _put_off_message(state))
    silos = state.participants
    failed = [f"Silo {silo.ref} failed: {silo.failure}" for silo in silos if silo.failure is not None]
    waiting = [
        silo.not_ready.with_subject(f"Silo {silo.ref}") for silo in silos if silo.not_ready is not None
    ]
    unheard = [
        silo.unheard.with_subject(f"Silo {silo.ref}")
        for silo in silos
        if silo.unheard is not None and silo.failure is None
    ]
    hindered = [
        silo.hindrance.with_subject(f"Silo {silo.ref}") for silo in silos if silo.hindrance is not None
    ]
    if not failed and not waiting and not unheard and not hindered:
        text = f"The agents of {count_text(len(silos), 'silo')} run."
        return Condition(ConditionType.SILOS_READY, "True", Reason.RUNNING, text)
    problems = [found.reason for found in (*waiting, *unheard, *hindered) if found.reason != Reason.STARTING]
    reason = Reason.SILO_FAILED if failed else next(iter(problems), Reason.STARTING)
    message = join_lines(failed + [found.message for found in (*waiting, *unheard, *hindered)])
    if problems and state.gang.deadline is not None and not state.gang.sufficient:
        message += (
            f"\nIf not all agents run by {timestamp(state.gang.deadline)}, the job frees what it holds."
        )
    return Condition(ConditionType.SILOS_READY, "False", reason, message)


def _put_off_message(state: JobState) -> str:
    """What the job waits for, who has it, and until when it holds nothing."""
    gang = state.gang
    until = timestamp(gang.retry_time) if gang.retry_time is not None else "later"
    whom = join_lines(gang.competitors, ", ")
    tries = f"It tries again at {until}" + (f", or as soon as {whom} made room." if whom else ".")
    lines = [f"Silo {found.silo}: {found.message}" for found in gang.awaited]
    others = [f"In these silos run, or go first: {whom}."] if whom else []
    return join_lines([f"Not all agents could run, so the job holds none. {tries}", *others, *lines])


def _outputs_delivered(state: JobState) -> Iterator[Condition]:
    """Whether what the job leaves beside its model has arrived, as the aggregator reports it."""
    outputs = status_of(state.observed).get("outputs") or ()
    failed = [
        f"{one['name']}: {one.get('message') or 'not delivered'}" for one in outputs if not one["delivered"]
    ]
    if failed:
        yield Condition(ConditionType.OUTPUTS_DELIVERED, "False", Reason.OUTPUT_FAILED, join_lines(failed))
    elif outputs:
        names = ", ".join(one["name"] for one in outputs)
        text = f"All that there is has arrived: {names}."
        yield Condition(ConditionType.OUTPUTS_DELIVERED, "True", Reason.DELIVERED, text)


def _running(state: JobState) -> Condition:
    aggregator = state.aggregator
    problem = state.rejection or state.trust.replaced_master
    if problem is not None:
        return Condition.of(ConditionType.RUNNING, "True" if aggregator.running else "False", problem)
    if state.suspended:
        return Condition(ConditionType.RUNNING, "False", Reason.SUSPENDED, "The job is suspended.")
    if state.gang.put_off:
        text = "The aggregator waits for the silos' agents to run together."
        return Condition(ConditionType.RUNNING, "False", Reason.GANG_INCOMPLETE, text)
    if aggregator.running:
        return Condition(ConditionType.RUNNING, "True", Reason.RUNNING, "The aggregator runs.")
    return Condition.of(ConditionType.RUNNING, "False", _not_running(state))


def _not_running(state: JobState) -> Diagnosis:
    """Why the aggregator does not run."""
    aggregator = state.aggregator
    if (known := aggregator.diagnosis or aggregator.claim_conflict) is not None:
        return known
    batch = aggregator.children.get(JOB)
    if batch is not None and not is_suspended(batch):
        return Diagnosis(Reason.STARTING, "The aggregator starts.")
    what = "an earlier aggregator's pod to end" if aggregator.previous_pod else "the silos' agents to run"
    return Diagnosis(Reason.STARTING, f"The aggregator waits for {what}.")


def _settled_condition(state: JobState, name: ConditionType) -> Condition | None:
    """A condition as it was at the start; None where the status does not have it yet."""
    before = _earlier_condition(state, name)
    unsettled = before is None or before.status == "False" or before.reason == Reason.UNREADABLE
    return None if unsettled else before


def _repeated_conditions(state: JobState, *names: ConditionType) -> Iterator[Condition]:
    """Conditions as they were observed, to be written unchanged."""
    for name in names:
        if before := _earlier_condition(state, name):
            yield before


def _earlier_condition(state: JobState, name: ConditionType) -> Condition | None:
    found = condition(state.observed, name)
    return Condition(name, found["status"], found["reason"], found["message"]) if found else None
