"""An agent on a cluster, interpreted here, once, for actions, conditions and status alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from fedsilo.api.conditions import AgentPhase
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo import Silo
from fedsilo.silo.agent.assess import assess as assess_anywhere
from fedsilo.silo.agent.component import ComponentState, exit_seconds
from fedsilo.silo.agent.observation import Observation
from fedsilo_operator.diagnosis.events import backoff
from fedsilo_operator.objects import JOB
from fedsilo_operator.rejections import diagnosis_of
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo.admission import admission
from fedsilo_operator.silo.budgets import ledger_of
from fedsilo_operator.silo.component import components, trainer_lost_seconds
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.silo.receipts import receipts
from fedsilo_operator.silo.state import AgentState
from fedsilo_operator.silo.succession import with_key_for
from fedsilo_operator.workloads.agent import GUARD, TRAINER, ParsedAgent, policy_map

LAST_MOMENT = timedelta(seconds=1)
"""A policy still permits what it permits at the very moment of `notAfter`."""

LONGEST_WAIT_SECONDS = 3600.0
"""Time until a date of a policy is looked at again: clocks are set."""

UNSIGNED_POLL_SECONDS = 30.0
"""Time after which a silo's key is looked for again that was not there, or not the one published: Secrets are not
watched."""


def assess(seen: AgentObservation, now: datetime, settings: SiloSettings) -> AgentState:
    """The state of an agent that is not being deleted."""
    seen = replace(seen, silo=with_key_for(seen.agent, seen.silo))
    trainer, guard = components(seen, now)
    anywhere = _observation(seen, trainer, guard)
    decided = None if anywhere.recorded_outcome else admission(seen, anywhere, now, settings)
    found = assess_anywhere(anywhere, decided, now)
    waits = [UNSIGNED_POLL_SECONDS if found.unsigned else None]
    if found.outcome is None:
        starting = found.begins and found.phase == AgentPhase.STARTING
        waits += [backoff(_jobs_and_pods(seen), now) if starting else exit_seconds(trainer, guard)]
        waits += [trainer_lost_seconds(seen, trainer, guard, now)]
        waits += [trainer.patience_seconds, guard.patience_seconds]
    present = None
    if decided is not None and decided.agent is not None and decided.silo is not None:
        present = ParsedAgent(decided.agent, decided.silo, seen.agent)
        waits += [_until_next_date(decided.silo, now)] if found.outcome is None else []
    return AgentState(
        seen.agent,
        found,
        trainer,
        guard,
        children=frozenset(seen.children),
        children_from=present if found.begins and not seen.orphans else None,
        policy=None if present is None else _outdated_policy(seen, present),
        requeue_after=min((wait for wait in waits if wait), default=None),
    )


def _observation(seen: AgentObservation, trainer: ComponentState, guard: ComponentState) -> Observation:
    """What the cluster knows of an agent, as any place would say it."""
    stated, rejected = status_of(seen.agent), diagnosis_of(seen.rejections)
    ledger = ledger_of(stated.get("ledger"), seen.pods.get(GUARD, ()))
    return Observation(
        agent=seen.agent,
        trainer=trainer,
        guard=guard,
        run_as="pods",
        begun=seen.started,
        files=seen.files,
        key=seen.signing_key,
        rejected=rejected,
        can_begin=not seen.orphans and rejected is None,
        said={"receipts": receipts(seen), "ledger": ledger},
    )


def _outdated_policy(seen: AgentObservation, present: ParsedAgent) -> Object | None:
    """The ConfigMap of the present policy as it should be, where it is there and says something else.

    A guard that runs reads it before anything leaves, so that it is kept current whatever was decided about the job.
    """
    if (observed := seen.current_policy) is None:
        return None
    wanted = policy_map(present)
    return None if observed.get("data") == wanted["data"] else wanted


def _until_next_date(silo: Silo, now: datetime) -> float | None:
    """Seconds until a date of the policy may change the decision, an hour at most; None when none will."""
    rules = silo.spec.policy
    changes = (
        *((rules.not_before.moment - now,) if rules.not_before is not None else ()),
        *((rules.not_after.moment - now + LAST_MOMENT,) if rules.not_after is not None else ()),
    )
    ahead = [change.total_seconds() for change in changes if change > timedelta()]
    return min((*ahead, LONGEST_WAIT_SECONDS)) if ahead else None


def _jobs_and_pods(seen: AgentObservation) -> list[Object]:
    jobs = [child for (kind, _), child in seen.children.items() if kind == JOB]
    return [*jobs, *seen.pods[TRAINER], *seen.pods[GUARD]]
