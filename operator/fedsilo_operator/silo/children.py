"""The children of a SiloAgent that are missing, and the suspension of its Jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedsilo_operator.names import ledgers_name
from fedsilo_operator.objects import CLAIM, CONFIG_MAP, NETWORK_POLICY, Child
from fedsilo_operator.plan import Action, ApplyAction, CreateAction, isolate
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo.state import AgentState
from fedsilo_operator.workloads.agent import (
    GUARD,
    POLICY,
    TRAINER,
    ParsedAgent,
    claim,
    config_map,
    guard_job,
    guard_policy,
    ledgers_claim,
    policy_map,
    trainer_job,
    trainer_policy,
)
from fedsilo_operator.workloads.suspension import (
    queue_of,
    resumption_actions,
    stop_actions,
    without_queue,
)


def creation_actions(state: AgentState, settings: SiloSettings) -> Iterator[Action]:
    """Actions that create the missing children, in one failure group: no pod is ever without its network policies."""
    return isolate("children", _creation_actions(state, settings))


def _creation_actions(state: AgentState, settings: SiloSettings) -> Iterator[Action]:
    parsed = state.children_from
    if parsed is None:
        return
    ledgers = (CLAIM, ledgers_name(parsed.silo.metadata.name))
    made: tuple[tuple[Child, Callable[[], Action]], ...] = (
        *(((ledgers, lambda: CreateAction(ledgers_claim(parsed))),) if parsed.budgeted else ()),
        ((CLAIM, parsed.ref.name), lambda: CreateAction(claim(parsed))),
        ((CONFIG_MAP, parsed.ref.name), lambda: CreateAction(config_map(parsed))),
        ((CONFIG_MAP, parsed.child(POLICY).name), lambda: ApplyAction(policy_map(parsed))),
        ((NETWORK_POLICY, parsed.child(TRAINER).name), lambda: CreateAction(trainer_policy(parsed))),
        ((NETWORK_POLICY, parsed.child(GUARD).name), lambda: CreateAction(guard_policy(parsed, settings))),
    )
    for child, create in made:
        if child not in state.children:
            yield create()
    if state.trainer.job is None and not state.trainer.previous_pod:
        yield ApplyAction(trainer_job(parsed, settings))
    if (
        state.guard.job is None
        and not state.guard.previous_pod
        and not _awaits_trainer(state, parsed, settings)
    ):
        yield ApplyAction(without_queue(guard_job(parsed, settings)))


def _awaits_trainer(state: AgentState, parsed: ParsedAgent, settings: SiloSettings) -> bool:
    """Whether the guard is made later, as its trainer is in a queue: it fits no other node than the trainer's."""
    if state.trainer.job is None:
        return queue_of(trainer_job(parsed, settings)) is not None
    return state.trainer.queued


def current_policy(state: AgentState) -> Iterator[Action]:
    """The action that tells a guard the policy as it is now; a failure group of its own."""
    if state.policy is not None:
        yield ApplyAction(state.policy, failure_group="policy")


def suspensions(state: AgentState) -> Iterator[Action]:
    """Actions that suspend or resume the Jobs; each is a failure group of its own, so that nothing keeps pods alive.

    A trainer that another has suspended takes its guard along: a silo has both or none.
    """
    for component in (state.trainer, state.guard):
        run = state.found.run.get(component.name)
        if component.job is None or component.ended or run is None:
            continue
        if run and not (component is state.guard and state.trainer.queued):
            yield from resumption_actions(component.job, component.name)
        else:
            yield from stop_actions(component.job, component.name, for_good=not state.found.begins)
