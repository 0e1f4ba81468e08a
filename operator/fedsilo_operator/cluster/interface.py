"""What the operator needs of a cluster.

Eight verbs over raw objects. Errors are sorted by what a controller does about them, not by status code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from fedsilo.api.observed import Object
from fedsilo.errors import FedsiloError
from fedsilo_operator.objects import Kind, Ref


class ClusterError(FedsiloError):
    """The API server did not do what was asked; `message` is its own."""

    reason = "ApiError"


class NotFound(ClusterError):
    """The answer 404, since the object is not there (any more)."""


class Conflict(ClusterError):
    """The answer 409, since the object exists already, was changed meanwhile, or has another uid.

    The watch will bring the news.
    """


class VersionExpired(ClusterError):
    """The answer 410, since the version to watch from is too old; list again."""


class CallRefused(ClusterError):
    """400, 403, 422, or a failing admission webhook: it will not be done, however often it is asked for."""


@dataclass(frozen=True)
class FieldCause:
    """One field of an object that an API server finds invalid, and why, with the value."""

    field: str
    message: str


class ObjectInvalid(CallRefused):
    """422 of the API server's own validation; what an admission rule denies is none."""

    def __init__(self, message: str, causes: tuple[FieldCause, ...]) -> None:
        super().__init__(message)
        self.causes = causes


class FieldConflict(CallRefused):
    """409 of server-side apply: another manager owns a field, which only a person can settle."""


class ClusterUnavailable(ClusterError):
    """429, 5xx, time-out, no connection: try again later."""


@dataclass(frozen=True)
class ObjectList:
    """Objects of a kind, and the version from which a watch goes on."""

    items: tuple[Object, ...]
    resource_version: str


@dataclass(frozen=True)
class Change:
    """One line of a watch. A bookmark carries nothing but a newer resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


@dataclass(frozen=True)
class Event:
    """Something that happened to an object, for people to read (core/v1 Event).

    :param about: the object, as observed.
    :param reason: CamelCase, from `fedsilo_operator.reasons`.
    """

    about: Object
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Cluster(Protocol):
    """A Kubernetes API server; every verb raises `ClusterError`."""

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> ObjectList:
        """Objects of a kind, in one namespace or all, by label and field selector; pages are put together."""

    def watch(
        self, kind: Kind, resource_version: str, *, namespace: str | None = None, labels: str = ""
    ) -> AsyncGenerator[Change, None]:
        """Changes after that version, bookmarks included, until the server ends the watch.

        :raises VersionExpired: when the version is too old.
        """

    async def get(self, kind: Kind, ref: Ref) -> Object:
        """One object as the API server has it; `NotFound` where there is none."""

    async def create(self, obj: Object) -> Object:
        """Make a new object, of a kind that may be created but not read, such as Secrets; `Conflict` when it exists."""

    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        """Server-side apply, by force to a status, else `FieldConflict` where a field would change that is another's.

        With `metadata.uid` or `metadata.resourceVersion` in the object, it must be that one (`Conflict`). Only
        the uid keeps an object that is gone from being made anew. What changes nothing is not written.

        :param status: apply to the status subresource instead. With a custom resource only the version counts
            there: another uid is no `Conflict` (Kubernetes 1.36).
        """

    async def merge(self, change: Object) -> Object:
        """JSON merge patch (RFC 7396) of the object that was read: whoever wrote its fields, and null removes one.

        With `metadata.uid` or `metadata.resourceVersion` in the change, it must be that one (`Conflict`); it is never
        made (`NotFound`).
        """

    async def delete(self, kind: Kind, ref: Ref, *, uid: str | None = None) -> None:
        """Delete in the background; that it is gone already is no error.

        :param uid: only the object with this identity.
        """

    async def event(self, event: Event) -> None:
        """Record an event about an object; one that repeats raises the count of the one before."""


class Cache(Protocol):
    """Objects that are known without asking the API server."""

    def get(self, kind: Kind, ref: Ref) -> Object | None:
        """One object as it was seen last; None where there is none."""

    def select(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Iterable[Object]:
        """Objects of a kind, in one namespace or all, that carry these labels."""
