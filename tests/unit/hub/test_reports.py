"""What is reported, and when: all that changed, in the end what was said last, and never more often than it changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedsilo.hub.contact import PAUSES
from fedsilo.hub.reports import (
    AgentReport,
    OfferReport,
    ReportQueue,
    reported_status,
)

PHASES = ("Pending", "Admitted", "Running")
steps = st.one_of(
    st.tuples(st.just("state"), st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from(PHASES)),
    st.tuples(st.just("publish"), st.just(""), st.just(""), st.sampled_from(PHASES)),
    st.tuples(st.just("forget"), st.sampled_from("ab"), st.just(""), st.just("")),
    st.tuples(st.sampled_from(["take", "fail"]), st.just(""), st.just(""), st.just("")),
)


@given(st.lists(steps, max_size=30))
def test_the_hub_has_in_the_end_what_was_said_last(history: list[tuple[str, str, str, str]]) -> None:
    reports, now, sent = ReportQueue(), 0.0, 0
    said: dict[str, AgentReport | OfferReport] = {}
    hub: dict[str, AgentReport | OfferReport] = {}
    changes = 0
    for verb, name, uid, phase in history:
        now += PAUSES.longest
        if verb == "state":
            changes += said.get(name) != (new := AgentReport(name, uid, {"phase": phase}))
            said[name] = new
            reports.state(name, uid, {"phase": phase})
        elif verb == "publish":
            changes += said.get("offer") != (stated := OfferReport({"time": phase}))
            said["offer"] = stated
            reports.publish({"time": phase})
        elif verb == "forget":
            said.pop(name, None)
            reports.forget(name)
        elif (report := reports.next_report(now)) is not None:
            if verb == "fail":
                reports.postpone_report(report, now)
                continue
            hub["offer" if isinstance(report, OfferReport) else report.agent] = report
            reports.took(report)
            sent += 1
    while (report := reports.next_report(now + PAUSES.longest)) is not None:
        hub["offer" if isinstance(report, OfferReport) else report.agent] = report
        reports.took(report)
        sent += 1
    assert {name: found for name, found in hub.items() if name in said} == said
    assert sent <= changes
    assert reports.wait(now) is None


def test_what_fails_is_tried_after_pauses_that_grow_and_at_once_when_the_hub_is_back() -> None:
    reports, now = ReportQueue(), 100.0
    reports.state("a", "1", {"phase": "Running"})
    pauses = []
    for _ in range(8):
        report = reports.next_report(now)
        assert report is not None
        reports.postpone_report(report, now)
        wait = reports.wait(now)
        assert wait is not None
        assert reports.next_report(now + wait / 2) is None
        pauses.append(wait)
        now += wait
    assert pauses == [min(2.0**tried, 60.0) for tried in range(8)]
    assert pauses[-1] == PAUSES.longest
    report = reports.next_report(now)
    assert report is not None
    reports.postpone_report(report, now)
    reports.flush_soon()
    assert reports.next_report(now) == report


def test_a_status_that_changes_while_it_is_sent_is_sent_again() -> None:
    reports = ReportQueue()
    reports.state("a", "1", {"phase": "Admitted"})
    report = reports.next_report(0)
    assert report is not None
    reports.state("a", "1", {"phase": "Running"})
    reports.took(report)
    assert reports.next_report(0) == AgentReport("a", "1", {"phase": "Running"})


def test_what_was_sent_of_an_earlier_agent_of_the_name_says_nothing_about_the_new_one() -> None:
    reports = ReportQueue()
    reports.state("a", "1", {"phase": "Running"})
    report = reports.next_report(0)
    assert report is not None
    reports.state("a", "2", {"phase": "Running"})
    reports.took(report)
    assert reports.next_report(0) == AgentReport("a", "2", {"phase": "Running"})


def test_what_is_of_the_place_alone_stays_there() -> None:
    condition = {"type": "Ready", "status": "True", "observedGeneration": 3}
    status = {
        "phase": "Running",
        "observedGeneration": 3,
        "configuration": "ab",
        "conditions": [condition],
        "decision": {"decision": "Admitted"},
    }
    assert reported_status(status) == {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "decision": {"decision": "Admitted"},
    }
