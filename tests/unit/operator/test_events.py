"""What an Event's message looks like in the table of `kubectl get events`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fedsilo_operator.cluster.events import MAX_EVENT_MESSAGE_CHARACTERS, EventCache, event_line, event_object
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.objects import SILO_AGENT, Ref
from tests.unit.operator.golden import sentences
from tests.unit.operator.silo.harness import agent

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("The aggregator runs.", "The aggregator runs."),
        (
            "Silo a: method creff is not permitted\nSilo b: no dataset scans.\nand 3 more",
            "Silo a: method creff is not permitted; Silo b: no dataset scans. and 3 more",
        ),
        ("Waiting for:\r\n  - a\n\n\tb\n", "Waiting for: - a; b"),
        ("a\x1b[31mred\x00\u202eb\u2028c", "a [31mred b; c"),
        ("", ""),
    ],
)
def test_a_message_is_one_line(message: str, line: str) -> None:
    assert event_line(message) == line


def test_a_long_message_is_cut_between_two_words() -> None:
    line = event_line("\n".join(f"Silo silo-{number}: refuses the job." for number in range(100)))
    assert len(line) <= MAX_EVENT_MESSAGE_CHARACTERS
    assert line.startswith("Silo silo-0: refuses the job. Silo silo-1: ")
    assert line.endswith(" …")
    assert event_line("x" * 5000) == "x" * (MAX_EVENT_MESSAGE_CHARACTERS - 2) + " …"


@pytest.mark.parametrize("golden", ["diagnoses", "objections", "outcomes"])
def test_one_silos_trouble_keeps_its_remedy(golden: str) -> None:
    for text in sentences(golden).values():
        for line in text.splitlines():
            assert event_line(line) == line


def test_an_object_has_the_line_and_what_differs_only_where_it_is_cut_is_a_repetition() -> None:
    first, second = (
        Event(agent(), "Warning", "PolicyRefused", "Silo a: no.\n" + "b " * 500 + end) for end in ("c", "d")
    )
    made = event_object(first, NOW, "operator-1")
    assert made["message"].startswith("Silo a: no. b b")
    cache, ref = EventCache(), Ref("silo-north", "event")
    cache.remember(first, ref, 1)
    assert cache.earlier_event(second) == (ref, 1)
    assert made["involvedObject"]["kind"] == SILO_AGENT.name
