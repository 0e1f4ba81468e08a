"""Following the hub, over sequences of what it may say: also old things again, and other things under the same name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.hub.client import AgentList, HubAgent
from fedsilo.hub.mirror import LocalAgent, Mirror, Steps, is_suspended

SILO = "silo-north/north"
NAMES, UIDS = ("a", "b", "c"), ("1", "2", "3", "4")


def agent(name: str, uid: str = "1", suspend: bool = False, silo: str = "north", **more: object) -> HubAgent:
    spec = {"silo": {"namespace": "silo-north", "name": silo}, "suspend": suspend, **more}
    return HubAgent(name, uid, spec)


def agent_list(version: int, *agents: HubAgent) -> AgentList:
    return AgentList(version, f"{version}-x", agents)


def carried_out(here: Mapping[str, LocalAgent], steps: Steps) -> dict[str, LocalAgent]:
    """What the institution has after the steps, as a place does them: an end takes its time, so it comes first."""
    after = {name: local for name, local in here.items() if name not in steps.end}
    for new in steps.begin:
        assert new.name not in after
        after[new.name] = LocalAgent(new.uid, is_suspended(new))
    for name, suspend in steps.suspend.items():
        after[name] = LocalAgent(after[name].uid, suspend)
    return after


agents = st.builds(agent, st.sampled_from(NAMES), st.sampled_from(UIDS), st.booleans())
lists = st.builds(
    lambda version, found: agent_list(version, *{one.name: one for one in found}.values()),
    st.integers(1, 6),
    st.lists(agents, max_size=4),
)


@given(st.lists(lists, max_size=8), st.integers(0, 6))
def test_the_institution_has_what_the_newest_list_has_and_never_an_older_one(
    said: list[AgentList], known: int
) -> None:
    mirror, here = Mirror(SILO, known), dict[str, LocalAgent]()
    newest = known
    for one in said:
        heard = mirror.hear(one)
        if one.version < newest:
            assert heard is mirror
            continue
        newest, mirror = one.version, heard
        here = carried_out(here, mirror.steps(here))
        assert here == {found.name: LocalAgent(found.uid, is_suspended(found)) for found in one.agents}
        assert mirror.steps(here) == Steps()
    assert mirror.version == newest


@given(
    lists,
    st.dictionaries(st.sampled_from(NAMES), st.builds(LocalAgent, st.sampled_from(UIDS), st.booleans())),
)
def test_an_agent_under_another_uid_ends_before_the_new_one_begins(
    said: AgentList, here: dict[str, LocalAgent]
) -> None:
    steps = Mirror(SILO).hear(said).steps(here)
    wanted = {one.name: one for one in said.agents}
    for name, local in here.items():
        ends = name not in wanted or wanted[name].uid != local.uid
        assert (name in steps.end) == ends
    for new in steps.begin:
        assert new.name not in here or new.name in steps.end
    assert not set(steps.suspend) & {*steps.end, *(new.name for new in steps.begin)}


def test_before_the_first_list_everything_goes_on_as_it_is() -> None:
    mirror = Mirror(SILO, 7)
    assert mirror.revision == ""
    assert mirror.steps({"a": LocalAgent("1", False)}) == Steps()


def test_what_is_repeated_from_before_a_restart_has_no_effect() -> None:
    mirror = Mirror(SILO, 7)
    assert mirror.hear(agent_list(6, agent("a"))) is mirror
    assert mirror.hear(agent_list(7, agent("a"))).steps({}).begin == (agent("a"),)


def test_what_is_said_later_under_the_same_uid_has_no_effect_but_for_the_suspension() -> None:
    here = {"a": LocalAgent("1", False)}
    mirror = Mirror(SILO).hear(agent_list(1, agent("a", trust={"url": "https://elsewhere.example"})))
    assert mirror.steps(here) == Steps()
    assert mirror.hear(agent_list(2, agent("a", suspend=True))).steps(here) == Steps(suspend={"a": True})


def test_an_agent_of_another_silo_is_not_the_institutions() -> None:
    """Another Silo of the same institution may have another policy."""
    strange = [
        agent("a", silo="south"),
        HubAgent("b", "1", {}),
        HubAgent("c", "1", {"silo": "silo-north/north"}),
    ]
    assert Mirror(SILO).hear(agent_list(1, *strange)).steps({}) == Steps()


def test_of_two_agents_of_one_name_the_first_counts() -> None:
    mirror = Mirror(SILO).hear(agent_list(1, agent("a", "1"), agent("a", "2")))
    assert mirror.steps({}).begin == (agent("a", "1"),)
    assert mirror.steps({"a": LocalAgent("1", False)}) == Steps()


@pytest.mark.parametrize("name", ["", "..", "../a", "a/b", "a.b", "A", "a" * 64, "a\n"])
def test_a_name_that_is_none_of_kubernetes_makes_nothing(name: str) -> None:
    """A directory or an object would be made of it."""
    assert Mirror(SILO).hear(agent_list(1, agent(name))).steps({}) == Steps()
    assert Mirror(SILO).hear(agent_list(1, agent("a", f"{name}/"))).steps({}) == Steps()
