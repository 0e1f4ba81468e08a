"""The next step of a SiloAgent: a pure function of what was observed.

Children are made where they are missing and are not changed afterwards, but for the suspension of the Jobs and the
present policy: an operator that is upgraded, or a Silo that is edited, changes nothing else under a job that runs.
"""

from __future__ import annotations

from datetime import datetime

from fedsilo_operator.objects import is_deleted
from fedsilo_operator.plan import Plan
from fedsilo_operator.settings import SiloSettings
from fedsilo_operator.silo import children, status
from fedsilo_operator.silo.assess import assess
from fedsilo_operator.silo.observe import AgentObservation


def reconcile(seen: AgentObservation, now: datetime, settings: SiloSettings) -> Plan:
    """What to do about an agent, and the status that it should have."""
    # 1. An agent that is being deleted takes its children along, by their owner references.
    if is_deleted(seen.agent):
        return Plan()

    # 2. Interpret what was observed, once: everything below reads this value only.
    state = assess(seen, now, settings)

    # 3. Tell a guard that runs the policy as it is now.
    actions = [*children.current_policy(state)]

    # 4. Make the children that are missing, once the silo admits the job and the job wants pods.
    actions += children.creation_actions(state, settings)

    # 5. Suspend or resume the Jobs, whatever became of the children.
    actions += children.suspensions(state)

    # 6. Write the status where it changes, and record an Event for each transition.
    wanted, events = status.document(state, now), tuple(status.events(state))

    # 7. Look again where no watch would report it: while only Events explain a pod, and while a trainer may end by
    # itself.
    return Plan(tuple(actions), events, wanted, state.requeue_after, state.found.unsigned)
