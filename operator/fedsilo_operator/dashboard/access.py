"""Who may see which jobs: those whom the API server authenticates and lets list them."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web
from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo.dashboard.server import Access
from fedsilo.dashboard.snapshot import PageSnapshot
from fedsilo_operator.cluster.interface import ClusterError
from fedsilo_operator.objects import FEDERATED_JOB, SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW

CACHE_SECONDS = 60.0
"""Time for which an answer of the API server is cached: a right that is withdrawn ends that much later."""

MAX_CACHED_ANSWERS = 1000
"""Cached answers, those about unknown tokens included."""

ALL_NAMESPACES = ""

log = logging.getLogger("fedsilo")


class ReviewClient(Protocol):
    """The part of the API server that answers reviews."""

    async def create(self, obj: Object) -> Object:
        """Create a review, whose status is the answer.

        :raises ClusterError: when there is no answer.
        """


@dataclass(frozen=True)
class User:
    """Who a token belongs to, as authentication.k8s.io/v1 says."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class TokenAccess(Access):
    """Bearer tokens by TokenReview, the right to list FederatedJobs, in all namespaces or some, by SubjectAccessReview.

    :param now: seconds of a clock that never goes back.
    """

    def __init__(self, reviewer: ReviewClient, now: Callable[[], float] = time.monotonic) -> None:
        self._reviewer = reviewer
        self._now = now
        self._known: OrderedDict[tuple[Any, ...], tuple[float, Any]] = OrderedDict()

    @override
    async def namespaces(self, request: web.Request, snapshot: PageSnapshot) -> Collection[str] | None:
        token = _bearer(request)
        digest = hashlib.sha256(token.encode()).digest()
        try:
            user: User | None = await self._answer((digest,), lambda: self._user(token))
            if user is None:
                raise _unauthorized_error("the cluster does not know this token")
            if await self._may(user, ALL_NAMESPACES):
                return None
            allowed = {name for name in sorted(snapshot.namespaces) if await self._may(user, name)}
        except ClusterError as error:
            log.warning("dashboard: who may see it cannot be found out: %s", error)
            raise web.HTTPServiceUnavailable(text="the cluster does not answer who you are\n") from error
        if not allowed:
            raise web.HTTPForbidden(text="You may not list FederatedJobs where there are any.\n")
        return allowed

    async def _may(self, user: User, namespace: str) -> bool:
        allowed: bool = await self._answer((user, namespace), lambda: self._review(user, namespace))
        return allowed

    async def _answer(self, question: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]) -> Any:
        """The cached answer, or a new one."""
        found = self._known.get(question)
        if found is None or found[0] < self._now():
            found = self._now() + CACHE_SECONDS, await ask()
            self._known[question] = found
            self._known.move_to_end(question)
            while len(self._known) > MAX_CACHED_ANSWERS:
                self._known.popitem(last=False)
        return found[1]

    async def _user(self, token: str) -> User | None:
        status = await self._status(TOKEN_REVIEW, {"token": token})
        if not status.get("authenticated"):
            return None
        user = status["user"]
        extra = tuple((name, tuple(values)) for name, values in sorted((user.get("extra") or {}).items()))
        return User(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), extra)

    async def _review(self, user: User, namespace: str) -> bool:
        group, version = FEDERATED_JOB.api.split("/")
        about = {
            "group": group,
            "version": version,
            "resource": FEDERATED_JOB.plural,
            "verb": "list",
            "namespace": namespace,
        }
        who = {"user": user.name, "uid": user.uid, "groups": list(user.groups)}
        extra = {name: list(values) for name, values in user.extra}
        status = await self._status(
            SUBJECT_ACCESS_REVIEW, {**who, "extra": extra, "resourceAttributes": about}
        )
        return bool(status.get("allowed"))

    async def _status(self, kind: Any, spec: Object) -> Object:
        # A review has no name; an empty one counts as none.
        review = {"apiVersion": kind.api, "kind": kind.name, "metadata": {"name": ""}, "spec": spec}
        return (await self._reviewer.create(review)).get("status") or {}


def _bearer(request: web.Request) -> str:
    """The request's token (RFC 6750, section 2.1)."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise _unauthorized_error("a bearer token is needed")
    return token


def _unauthorized_error(why: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=f"{why}\n", headers={"WWW-Authenticate": 'Bearer realm="fedsilo"'})
