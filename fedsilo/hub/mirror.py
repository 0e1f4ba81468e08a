"""What an institution makes of what its hub says: the pure part of following it, the same in every kind of place.

A SiloAgent is known by its uid at the hub. What was told of a uid first is what holds: the institution has decided on
that. Only `suspend` changes afterwards, and whatever else a hub says later under the same uid has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsilo.api.observed import UID
from fedsilo.hub.client import AgentList, HubAgent

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""What names are in Kubernetes: an institution makes objects and logs of them."""

MAX_DEPTH = 100
"""Lists and mappings of a specification in one another."""


@dataclass(frozen=True)
class LocalAgent:
    """A SiloAgent of the hub as the institution has it.

    :param uid: the one at the hub.
    :param suspended: whether it is to have no processes.
    """

    uid: str
    suspended: bool


@dataclass(frozen=True)
class Steps:
    """How the institution comes to have what the hub has.

    :param end: names of agents that are gone at the hub, or are others there now.
    :param begin: new agents; one whose name is in `end` too begins once the other is gone.
    :param suspend: by name, agents that are to be suspended (True) or to go on (False).
    """

    end: tuple[str, ...] = ()
    begin: tuple[HubAgent, ...] = ()
    suspend: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Mirror:
    """What the hub has told last; a list that is older than one already seen is never followed.

    :param silo: `namespace/name` of the silo.
    :param version: of the newest list; 0 before the first.
    :param told: the newest list; None until this process has one.
    """

    silo: str
    version: int = 0
    told: AgentList | None = None

    def hear(self, told: AgentList) -> Mirror:
        """With what the hub has said now, unless it is older than what it has said before.

        Whoever stands between can repeat what the hub has signed once, but not take the institution back to it.
        """
        return self if told.version < self.version else Mirror(self.silo, told.version, told)

    @property
    def revision(self) -> str:
        """What to ask for the next list with: empty as long as there is none, so that there will be one."""
        return "" if self.told is None else self.told.revision

    def wanted_agents(self) -> dict[str, HubAgent]:
        """The agents to have, by name: those for this silo, each name once, and no name that is a path."""
        found: dict[str, HubAgent] = {}
        for agent in self.told.agents if self.told is not None else ():
            if is_for(agent, self.silo) and _NAME.fullmatch(agent.name) and UID.fullmatch(agent.uid):
                found.setdefault(agent.name, agent)
        return found

    def steps(self, here: Mapping[str, LocalAgent]) -> Steps:
        """What to end, begin and suspend so that the agents here are those of the hub's list.

        Before the first list there is nothing to do, since everything then goes on as it is.

        :param here: by name, the agents of the hub that the institution has.
        """
        if self.told is None:
            return Steps()
        wanted = self.wanted_agents()
        return Steps(
            end=tuple(
                sorted(
                    name
                    for name, local in here.items()
                    if name not in wanted or wanted[name].uid != local.uid
                )
            ),
            begin=tuple(
                agent for name, agent in wanted.items() if name not in here or here[name].uid != agent.uid
            ),
            suspend={
                name: is_suspended(agent)
                for name, agent in wanted.items()
                if name in here and here[name] == LocalAgent(agent.uid, not is_suspended(agent))
            },
        )


def is_for(agent: HubAgent, silo: str) -> bool:
    """Whether an agent is for this silo: a hub could name another one of the same institution."""
    named: Any = agent.spec.get("silo")
    return isinstance(named, dict) and f"{named.get('namespace', 'default')}/{named.get('name')}" == silo


def is_too_deep(agent: HubAgent) -> bool:
    """Whether its specification is nested too deeply: what could be read may be too deep to be written."""
    level: list[Any] = [agent.spec]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, Mapping) else one)
            if isinstance(child, Mapping | list)
        ]
        if not level:
            return False
    return True


def is_suspended(agent: HubAgent) -> bool:
    """Whether the job controller wants no processes."""
    return agent.spec.get("suspend") is True
