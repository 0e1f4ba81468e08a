"""Does the actions of a plan: those that do not depend on each other at the same time, the others in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from itertools import groupby
from typing import Any

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.cluster.interface import CallRefused, Cluster, ClusterError, Conflict, NotFound
from fedsilo_operator.objects import FEDERATED_JOB, JOB_UID, MANAGED_BY, SILO, SILO_AGENT, labels_of
from fedsilo_operator.plan import Action, ApplyAction, CreateAction, MergeAction
from fedsilo_operator.rejections import NameTaken, Rejection, rejection

WATCHED_ENTIRELY = (FEDERATED_JOB, SILO_AGENT)
"""Kinds that are watched without a selector: no object of theirs can have a name without being in the caches."""

MAX_CONCURRENT_WRITES = 8
"""Writes of one reconcile that are under way at once: a job with a thousand silos leaves room for others."""


async def act(
    actions: Iterable[Action], about: Object, cluster: Cluster
) -> tuple[Object, tuple[Rejection, ...]]:
    """Do the plan's actions; returns the reconciled object as they left it, and what was rejected, in the plan's order.

    :raises ClusterError: of the first write that failed otherwise; what had not begun then is not tried.
    """
    execution = _Execution(about, cluster)
    numbered = enumerate(actions)
    for independent, found in groupby(numbered, key=lambda item: bool(item[1].failure_group)):
        if not independent:
            await execution.do_group(list(found))
            continue
        groups: defaultdict[str, list[_NumberedAction]] = defaultdict(list)
        for item in found:
            groups[item[1].failure_group].append(item)
        await execution.run_concurrently([execution.do_group(group) for group in groups.values()])
    rejections = execution.rejections
    return execution.about, tuple(rejections[number] for number in sorted(rejections))


_NumberedAction = tuple[int, Action]
"""An action with its place in the plan."""


class _Execution:
    """The actions of one plan, as far as they have been done.

    :ivar about: the reconciled object as they have left it.
    :ivar rejections: what was rejected, by the action's place in the plan.
    """

    def __init__(self, about: Object, cluster: Cluster) -> None:
        self.about = about
        self.rejections: dict[int, Rejection] = {}
        self._cluster = cluster
        self._ended: set[str] = set()
        self._failed = False
        self._turn = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

    async def do_group(self, group: Sequence[_NumberedAction]) -> None:
        """One failure group in order, but for creations that follow one another: none needs the one before."""
        for created, found in groupby(
            group, key=lambda item: isinstance(item[1], CreateAction) and item[1].check_owner
        ):
            if created:
                await self.run_concurrently([self._do(*item) for item in found])
                continue
            for item in found:
                await self._do(*item)

    async def run_concurrently(self, parts: Sequence[Coroutine[Any, Any, None]]) -> None:
        """All at the same time.

        :raises ClusterError: of the first that failed.
        """
        if len(parts) == 1:
            await parts[0]
            return
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _do(self, number: int, action: Action) -> None:
        """One action, unless something before it ended its failure group."""
        async with self._turn:
            if self._failed or "" in self._ended or action.failure_group in self._ended:
                return
            try:
                answer = await _do(action, self._cluster)
            except (CallRefused, NotFound) as error:
                # NotFound: the namespace is gone, or the kind is not served.
                self.rejections[number] = rejection(
                    action.kind, action.ref, error, getattr(action, "object", None), self.about
                )
                self._ended.add(action.failure_group)
            except ClusterError:
                self._failed = True
                raise
            else:
                if answer is not None and uid_of(answer) == uid_of(self.about):
                    self.about = answer


async def _do(action: Action, cluster: Cluster) -> Object | None:
    """Do one action of a plan; returns the object as an apply left it."""
    if isinstance(action, ApplyAction):
        if "uid" not in action.object["metadata"] and action.kind not in WATCHED_ENTIRELY:
            await _require_ownership(action, cluster)
        return await cluster.apply(action.object, manager=action.manager)
    if isinstance(action, CreateAction):
        await _create(action, cluster)
    elif isinstance(action, MergeAction):
        await cluster.merge(action.object)
    else:
        await cluster.delete(action.kind, action.ref, uid=action.uid)
    return None


async def _create(action: CreateAction, cluster: Cluster) -> None:
    """The name is looked at only where it is taken: a cache that is behind does not know what is ours already."""
    try:
        await cluster.create(action.object)
    except Conflict:
        if action.check_owner and not await _require_ownership(action, cluster):
            raise


async def _require_ownership(action: ApplyAction | CreateAction, cluster: Cluster) -> bool:
    """An apply would merge into whatever has the name, and the watches see only what carries the operator's labels.

    :return: whether the object is there.
    :raises CallRefused: when somebody else made it.
    """
    try:
        found = await cluster.get(action.kind, action.ref)
    except NotFound:
        return False
    if _has_same_owner(found, action.object):
        return True
    if _is_of_earlier_owner(found, action.object):
        raise Conflict(f"{action.kind} {action.ref} of an earlier owner is not gone yet")
    raise NameTaken(f"{action.kind} {action.ref} is another's")


def _has_same_owner(found: Object, wanted: Object) -> bool:
    """Whether both have the same owner; what has none, such as a claim, is known by its labels."""
    owners = wanted["metadata"].get("ownerReferences")
    if owners:
        return _controllers(found, "uid") & {owner["uid"] for owner in owners} != set()
    names = [name for name in (MANAGED_BY, JOB_UID, SILO) if name in labels_of(wanted)]
    return all(labels_of(found).get(name) == labels_of(wanted)[name] for name in names)


def _is_of_earlier_owner(found: Object, wanted: Object) -> bool:
    """Whether it belongs to an object of the owner's name that is gone, and so is about to go itself."""
    owners = wanted["metadata"].get("ownerReferences") or ()
    return _controllers(found, "kind", "name") & {(owner["kind"], owner["name"]) for owner in owners} != set()


def _controllers(found: Object, *names: str) -> set[Any]:
    references = found["metadata"].get("ownerReferences") or ()
    of = [
        tuple(reference.get(name) for name in names)
        for reference in references
        if reference.get("controller")
    ]
    return {values[0] if len(names) == 1 else values for values in of}
