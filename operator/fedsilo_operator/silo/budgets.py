"""What is spent of a Silo's privacy budgets: from what guards have said of its ledgers, and what jobs may yet spend.

A guard says what is spent when its container ends (`fedsilo_agent.guard.report`). Until then its job has all reserved
that it states and has not said to have spent. What was said longest ago is said with the fewest lines of the ledger.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsilo.api.agent import FrozenJob, SiloAgent
from fedsilo.api.budgets import MAX_BUDGET_JOBS, BudgetJob, BudgetStatus, StatedLedger
from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.silo.budget_figures import SpentBudget, reserved_epsilon, spent_at
from fedsilo.silo.shared_data import shared_data
from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.diagnosis.pods import alive
from fedsilo_operator.objects import COMPONENT, JOB_UID, POD, SILO, SILO_AGENT, Ref, labels_of, silo_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.workloads.agent import GUARD
from fedsilo_operator.workloads.pod import DATA


@dataclass(frozen=True)
class BudgetObservation:
    """What says what is spent of a Silo's budgets.

    :param agents: of the Silo.
    :param guards: pods of guards, also of agents that are gone.
    """

    agents: Sequence[Object] = ()
    guards: Sequence[Object] = ()


NO_BUDGETS = BudgetObservation()


def has_budgets(silo: Object | None) -> bool:
    """Whether the Silo's policy has any, whatever else is in it."""
    policy = ((silo or {}).get("spec") or {}).get("policy") or {}
    return bool(policy.get("privacyBudget"))


def separate(silo: Object) -> Condition | None:
    """Whether no two datasets of a Silo with budgets are of the same data; None where there never were any.

    Of a Silo that cannot be read nothing is compared, and what was found before stays.
    """
    present = condition(silo, ConditionType.BUDGETS_SEPARATE)
    if has_budgets(silo):
        if (parsed := _parsed_silo(silo)) is None:
            return None if present is None else _repeated_condition(present)
        if found := ". ".join(shared_data(parsed, Path(DATA))):
            return Condition(ConditionType.BUDGETS_SEPARATE, "False", Reason.SAME_DATA, f"{found}.")
    if present is None:
        return None
    text = "No two datasets of which one has a budget are of the same data."
    return Condition(ConditionType.BUDGETS_SEPARATE, "True", Reason.SEPARATE, text)


def _repeated_condition(present: Mapping[str, Any]) -> Condition:
    return Condition(
        ConditionType.BUDGETS_SEPARATE, present["status"], present["reason"], present.get("message", "")
    )


def _parsed_silo(silo: Object) -> Silo | None:
    try:
        return Silo.model_validate({name: item for name, item in silo.items() if name != "status"})
    except ValidationError:
        return None


def observe_budgets(cache: Cache, silo: Object | None, ref: Ref) -> BudgetObservation:
    """The Silo's agents and guards that its budgets follow from, as the caches have them; nothing without budgets."""
    if not has_budgets(silo):
        return NO_BUDGETS
    agents = [agent for agent in cache.select(SILO_AGENT, namespace=ref.namespace) if silo_of(agent) == ref]
    guards = cache.select(POD, namespace=ref.namespace, labels={SILO: ref.name, COMPONENT: GUARD})
    return BudgetObservation(agents, list(guards))


def ledger_of(stated: Object | None, guards: Iterable[Object]) -> Object | None:
    """What the guards of one agent have said of the ledger last, since it only grows.

    :param stated: in the agent's status.
    """
    known = [found for found in (_ledger(stated), *_final_ledgers(guards)) if found is not None]
    newest = max(known, key=lambda found: found.lines, default=None)
    return None if newest is None else newest.model_dump(mode="json", by_alias=True)


def budgets(silo: Silo, seen: BudgetObservation, now: datetime) -> tuple[BudgetStatus, ...]:
    """What the Silo's status says, one for each of its budgets."""
    return tuple(_budget(silo, budget, seen, now) for budget in silo.spec.policy.privacy_budget or ())


def spent_so_far(silo: Silo, job: FrozenJob, seen: BudgetObservation, now: datetime) -> SpentBudget:
    """What is spent of the budget of a job's dataset when the job asks for room in it."""
    budget = silo.spec.policy.budget_of(job.spec.data.dataset)
    if budget is None:
        return SpentBudget()
    found = _budget(silo, budget, seen, now)
    return SpentBudget(found.spent, sum(one.reserved for one in found.jobs if one.uid != job.uid))


def _budget(silo: Silo, budget: PrivacyBudget, seen: BudgetObservation, now: datetime) -> BudgetStatus:
    before = next((one for one in silo.status.privacy_budget if one.dataset == budget.dataset), None)
    said = _by_job(budget.dataset, seen)
    newest = max((one for ledgers in said.values() for one in ledgers), key=_lines, default=None)
    if before is not None and (newest is None or before.lines >= newest.lines):
        spent, lines, later = before.spent, before.lines, before.later
    elif newest is not None:
        spent, lines, later = newest.spent, newest.lines, newest.later
    else:
        spent, lines, later = 0.0, 0, ()
    spent = spent_at(now, spent, later)
    jobs = tuple(_jobs(budget, before, said, seen))
    total = sum(job.reserved for job in jobs)
    return BudgetStatus(
        dataset=budget.dataset,
        unit=budget.unit,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        reserved=total,
        left=max(budget.epsilon - spent - total, 0.0),
        jobs=jobs,
        lines=lines,
        later=tuple(one for one in later if one.since.moment > now),
    )


def _jobs(
    budget: PrivacyBudget,
    before: BudgetStatus | None,
    said: Mapping[str, Sequence[StatedLedger]],
    seen: BudgetObservation,
) -> Iterator[BudgetJob]:
    """Jobs with a part in the budget; those that have ended in the order in which they came, the last ones."""
    running = {labels_of(pod)[JOB_UID] for pod in seen.guards if JOB_UID in labels_of(pod) and alive([pod])}
    known = {job.uid: job for job in (before.jobs if before is not None else ())}
    frozen = {job.uid: (job, ended) for job, ended in map(_part, seen.agents) if job is not None}
    found = []
    for uid in dict.fromkeys((*known, *frozen)):
        earlier, (job, over) = known.get(uid), frozen.get(uid, (None, True))
        if job is not None and job.spec.data.dataset != budget.dataset:
            continue
        newest = max(said.get(uid, ()), key=_lines, default=None)
        spent = newest.of_job if newest is not None else earlier.spent if earlier is not None else 0.0
        name = (
            f"{job.namespace}/{job.name}" if job is not None else earlier.job if earlier is not None else ""
        )
        if job is not None:
            kept = 0.0 if over and uid not in running else reserved_epsilon(job, spent, budget.delta)
        else:
            # Its agent is gone, and its guard has yet to end and say what it has spent.
            kept = earlier.reserved if earlier is not None and uid in running else 0.0
        if spent or kept:
            found.append(BudgetJob(uid=uid, job=name, spent=spent, reserved=kept))
    over_number = max(len(found) - MAX_BUDGET_JOBS, 0)
    dropped = {job.uid for job in [one for one in found if not one.reserved][:over_number]}
    yield from [job for job in found if job.uid not in dropped][:MAX_BUDGET_JOBS]


def _part(agent: Object) -> tuple[FrozenJob | None, bool]:
    """The job of an agent that was admitted or has begun, and whether it has ended; else None."""
    admitted = holds(agent, ConditionType.ADMITTED) or status_of(agent).get("configuration")
    over = any(holds(agent, end) for end in (ConditionType.FINISHED, ConditionType.FAILED))
    if not admitted:
        return None, over
    try:
        return SiloAgent.model_validate(agent).spec.job, over
    except ValidationError:
        return None, over


def _by_job(dataset: str, seen: BudgetObservation) -> dict[str, list[StatedLedger]]:
    """What guards have said of a dataset's ledger, by their job's identity."""
    found: defaultdict[str, list[StatedLedger]] = defaultdict(list)
    for agent in seen.agents:
        stated = _ledger(status_of(agent).get("ledger"))
        if stated is not None and stated.dataset == dataset:
            found[str(agent["spec"]["job"]["uid"])].append(stated)
    for pod in seen.guards:
        uid = labels_of(pod).get(JOB_UID)
        if uid is not None:
            found[uid] += [one for one in _final_ledgers([pod]) if one.dataset == dataset]
    return found


def _final_ledgers(guards: Iterable[Object]) -> Iterator[StatedLedger]:
    """What containers of guards have left at their end; anything that is no such summary is none."""
    for pod in guards:
        for container in status_of(pod).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            try:
                said = json.loads(ended["message"])["ledger"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if (ledger := _ledger(said)) is not None:
                yield ledger


def _ledger(stated: Object | None) -> StatedLedger | None:
    try:
        return None if stated is None else StatedLedger.model_validate(stated)
    except ValidationError:
        return None


def _lines(ledger: StatedLedger) -> int:
    return ledger.lines
