"""What a controller decided, as data: deciding needs no cluster, and carrying out needs no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.objects import MANAGER, Kind, Ref, kind_of, ref_of

CONFIRM_SECONDS = 30.0
"""Time after which to look again after a write, although no watch has reported it."""


@dataclass(frozen=True)
class ObjectAction:
    """An action on an object that it contains."""

    object: Object

    @property
    def kind(self) -> Kind:
        """Kind of the object."""
        return kind_of(self.object)

    @property
    def ref(self) -> Ref:
        """Namespace and name of the object."""
        return ref_of(self.object)


@dataclass(frozen=True)
class ApplyAction(ObjectAction):
    """Server-side apply of an object that is missing or not as it should be."""

    manager: str = MANAGER
    failure_group: str = ""


@dataclass(frozen=True)
class CreateAction(ObjectAction):
    """Make an object that is never changed afterwards; that it exists already is no error.

    :param check_owner: whether it is refused where one that exists is another's; False for what the operator may not
        read.
    """

    check_owner: bool = True
    failure_group: str = ""


@dataclass(frozen=True)
class MergeAction(ObjectAction):
    """Change some fields of the very object that was read, whoever wrote them; null removes one."""

    failure_group: str = ""


@dataclass(frozen=True)
class DeleteAction:
    """Delete the object with this identity."""

    kind: Kind
    ref: Ref
    uid: str
    failure_group: str = ""


Action = ApplyAction | CreateAction | MergeAction | DeleteAction
"""What the API server refuses ends its failure group; outside any, it ends everything that was to come after it.

Failure groups that follow one another are done at the same time, and so are creations within one.
"""


def isolate(failure_group: str, actions: Iterable[Action]) -> Iterator[Action]:
    """These actions as one failure group, but for those that have one: what is refused in one does not stop another."""
    return (replace(action, failure_group=action.failure_group or failure_group) for action in actions)


@dataclass(frozen=True)
class Plan:
    """What one reconcile has decided to write.

    Actions are done in order, but for what may be done at the same time (see `Action`), then the status is written,
    then events are recorded: a status never claims what was not done yet. Where something was refused, the plan is made
    again with that in view, and this one's status and events count. Nothing to do is the plan of a settled object.

    :param status: the fields of the status that the operator owns, whole; None when they are as they should be.
    :param requeue_after: seconds after which to look again although nothing changed; None when only changes matter.
    :param awaits_signature: whether something has yet to be signed: the plan is made again with the key.
    """

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    status: dict[str, Any] | None = None
    requeue_after: float | None = None
    awaits_signature: bool = False

    @property
    def settled(self) -> bool:
        """Whether there is nothing to write."""
        return not self.actions and not self.events and self.status is None

    @property
    def requeue_delay(self) -> float | None:
        """Seconds after which to look again, as the runtime has to keep them; after a write, always some.

        What was made may be gone before any watch has brought it. It leaves no trace then, and nothing would trigger
        another reconcile.
        """
        if not self.actions:
            return self.requeue_after
        return CONFIRM_SECONDS if self.requeue_after is None else min(self.requeue_after, CONFIRM_SECONDS)
