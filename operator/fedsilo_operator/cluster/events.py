"""core/v1 Events as objects, and which of them repeat an earlier one."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from uuid import uuid4

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.objects import MANAGER, Ref, ref_of

MAX_EVENT_MESSAGE_CHARACTERS = 600
"""Characters of an Event's message: room for one silo's objection, or one pod's trouble with its remedy; the API
allows 1 kB."""

MAX_REMEMBERED = 4096
"""Events whose repetitions are recognised; a forgotten one is written again, which does no harm."""

_Key = tuple[str, str, str, str]


def event_object(event: Event, now: datetime, reporter: str) -> Object:
    """The Event object for something that happened once, under a name of its own.

    :param reporter: identity of this process.
    """
    about = event.about
    ref = ref_of(about)
    namespace = ref.namespace or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": f"{ref.name[:200]}.{uuid4().hex[:16]}"},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "namespace": namespace,
            "name": ref.name,
            "uid": uid_of(about),
            "resourceVersion": about["metadata"].get("resourceVersion", ""),
        },
        "type": event.type,
        "reason": str(event.reason),
        "message": event_line(event.message),
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": reporter,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }


class EventCache:
    """Events of this process by content: one that repeats raises a count instead of creating an object."""

    def __init__(self) -> None:
        self._written: OrderedDict[_Key, tuple[Ref, int]] = OrderedDict()

    def earlier_event(self, event: Event) -> tuple[Ref, int] | None:
        """The Event object with the same content, and its count."""
        return self._written.get(_key(event))

    def remember(self, event: Event, ref: Ref, count: int) -> None:
        """Note that this Event object was written, with this count."""
        self._written[_key(event)] = (ref, count)
        self._written.move_to_end(_key(event))
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)


def _key(event: Event) -> _Key:
    return uid_of(event.about), event.type, str(event.reason), event_line(event.message)


def event_line(message: str) -> str:
    """A message as one line, which `kubectl get events` shows in its table: sentences follow each other, other lines
    have a semicolon between them, and one that is too long ends with `…`.

    What moves a terminal's cursor, or reverses what follows, becomes a space: silos and institutions write such texts.
    """
    plain = ("".join(one if one.isprintable() else " " for one in line) for line in message.splitlines())
    lines = [" ".join(line.split()) for line in plain]
    text = ""
    for line in filter(None, lines):
        between = "" if not text else " " if text.endswith((".", "!", "?", ":", ";", ",")) else "; "
        text += between + line
    if len(text) <= MAX_EVENT_MESSAGE_CHARACTERS:
        return text
    kept = text[: MAX_EVENT_MESSAGE_CHARACTERS - 2]
    return f"{kept.rpartition(' ')[0] or kept} …"
