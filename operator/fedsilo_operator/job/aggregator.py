"""Actions on the aggregator's objects: those that are missing, and those that are not as they should be."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.job.state import JobState
from fedsilo_operator.job.trust import bundle, keys_of
from fedsilo_operator.objects import CLAIM, CONFIG_MAP, JOB, SERVICE, is_deleted, kind_of, ref_of, satisfies
from fedsilo_operator.plan import Action, ApplyAction, CreateAction, DeleteAction
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads import aggregator as children
from fedsilo_operator.workloads.suspension import is_suspended, resumption_actions, stop_actions


def orphans(state: JobState) -> Iterator[Action]:
    """Delete what an earlier job of this name has left."""
    for orphan in state.aggregator.orphans:
        if not is_deleted(orphan):
            yield DeleteAction(kind_of(orphan), ref_of(orphan), uid_of(orphan))


def static_children(state: JobState, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """The objects that exist from the first step to the last, and are restored when they are missing."""
    trust, observed = state.trust, state.observed
    if trust.service_address is not None and trust.service_address != trust.address:
        # An address does not change in place, and the agents know only the one that they were given.
        service = state.aggregator.children[SERVICE]
        yield DeleteAction(SERVICE, ref_of(service), uid_of(service))
    else:
        yield from _put(state, children.service(observed, trust.address))
    yield from _put(state, children.account(observed))
    yield from _put(state, children.role(observed))
    yield from _put(state, children.role_binding(observed))
    from_anywhere = job.spec.aggregator.url is not None
    policy = children.network_policy(observed, settings, from_anywhere=from_anywhere, mlflow=job.spec.mlflow)
    yield from _put(state, policy)


def configuration(state: JobState, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """The frozen job and its silos; immutable, so made once, and again only where it is gone."""
    if CONFIG_MAP in state.aggregator.children or not state.aggregator.may_make(CONFIG_MAP):
        return
    keys = {silo.ref: silo.public_key for silo in state.participants if silo.public_key is not None}
    if len(keys) == len(state.participants):
        trust = bundle(state.trust, state.observed, job, settings)
        yield CreateAction(children.config(state.observed, job, keys, trust))


def workload(state: JobState, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """The aggregator's Job, with the volume and the keys that it needs."""
    aggregator = state.aggregator
    batch = aggregator.children.get(JOB)
    if batch is not None:
        yield from _existing_workload(state, job, settings, batch)
        return
    due = state.active and (aggregator.has_run or not state.awaits_agents)
    free = not aggregator.previous_pod and aggregator.claim_conflict is None and aggregator.may_make(JOB)
    if due and free:
        yield from _claim(state, job)
        yield from _secret(state, job, settings)
        yield ApplyAction(children.workload(state.observed, job, settings))


def suspension_actions(state: JobState) -> Iterator[Action]:
    """Suspend the aggregator's Job, unless it has ended."""
    batch = state.aggregator.children.get(JOB)
    if batch is not None and state.aggregator.outcome is None:
        yield from stop_actions(batch, "suspension", for_good=True)


def _existing_workload(
    state: JobState, job: FederatedJob, settings: Settings, batch: Object
) -> Iterator[Action]:
    """Actions on an aggregator's Job that exists already.

    The Job waits for the agents when it is resumed, as it did at first; once it runs it goes on without.

    Where too few agents are left for any round, as another has suspended the others, it waits too: the round's time
    would pass. One that outlived its account gets a new pod by suspension, which counts no failure.
    """
    aggregator = state.aggregator
    waits = is_suspended(batch) and state.awaits_agents
    if state.active and not aggregator.running:
        yield from _claim(state, job)
        if aggregator.diagnosis is not None and aggregator.diagnosis.reason == Reason.CONFIG_MISSING:
            yield from _secret(state, job, settings)
    if not state.active:
        yield from stop_actions(batch, "suspension", for_good=True)
    elif state.gang.lacks_quorum or aggregator.outlived_account:
        yield from stop_actions(batch, "suspension", for_good=False)
    elif not waits:
        yield from resumption_actions(batch, "suspension")


def _secret(state: JobState, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """The Secret with its keys, unless no silo would trust them."""
    if state.trust.replaced_master is None:
        keys = keys_of(state.trust, state.observed, job, settings)
        yield CreateAction(children.secret(state.observed, keys), check_owner=False)


def _claim(state: JobState, job: FederatedJob) -> Iterator[Action]:
    if CLAIM not in state.aggregator.children and state.aggregator.claim_conflict is None:
        yield CreateAction(children.claim(state.observed, job))


def _put(state: JobState, wanted: Object) -> Iterator[Action]:
    """Apply the object if it is missing or not as it is wanted."""
    kind = kind_of(wanted)
    observed = state.aggregator.children.get(kind)
    if observed is None:
        if state.aggregator.may_make(kind):
            yield ApplyAction(wanted)
    elif not is_deleted(observed) and not satisfies(observed, wanted):
        yield ApplyAction(wanted | {"metadata": wanted["metadata"] | {"uid": uid_of(observed)}})
