"""What goes wrong in a run, as plain values: few numbers that shrink well and read as a story."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st
from typing_extensions import override

SILOS = ("north", "south")

PARTIES = ("aggregator", *(f"{silo} {role}" for silo in SILOS for role in ("guard", "trainer")))

LONG_SECONDS, SHORT_SECONDS = 3600, 45
"""Deadlines of rounds, of which no fault exceeds the first, and some exceed the second."""

METHODS = ("averaging", "chain", "phases")


@dataclass(frozen=True)
class Mishap:
    """What happens to a request or its response.

    :param kind: `cut` breaks the connection after some bytes, `silent` delivers no more and tells nobody, `late`
        holds all of them back, `again` lets the whole request arrive a second time.
    :param after: bytes that still arrive.
    :param seconds: by which it is late.
    """

    way: Literal["request", "response"]
    kind: Literal["cut", "silent", "late", "again"]
    after: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Message:
    """A mishap of a silo's n-th request, counted from 1."""

    silo: str
    request: int
    mishap: Mishap


@dataclass(frozen=True)
class Damage:
    """A file that changes while nobody looks.

    :param file: which, in the order of names, modulo their number.
    :param position: where in it, from 0 to 99 percent.
    """

    kind: Literal["flip", "cut", "zeros", "remove"]
    file: int
    position: int


@dataclass(frozen=True)
class Crash:
    """A process dies at its n-th durable step.

    :param before: the step is not done any more.
    :param power: its machine loses power, with all that was not synced: of a silo, guard and trainer.
    :param down: seconds until it is started again.
    """

    party: str
    step: int
    before: bool = False
    power: bool = False
    down: float = 1.0
    damage: Damage | None = None


@dataclass(frozen=True)
class FullDisk:
    """The disk of a party has no space from its n-th durable step on."""

    party: str
    step: int
    seconds: float


Fault = Message | Crash | FullDisk


@dataclass(frozen=True)
class Plan:
    """What goes wrong in one run: its method, its deadline and its faults.

    :param deadline: of each round, seconds; the faults of a plan take less than the long one.
    :param restless: a trainer never computes the same answer twice.
    """

    method: str = "averaging"
    deadline: int = LONG_SECONDS
    restless: bool = False
    faults: tuple[Fault, ...] = field(default=())

    @property
    def generous(self) -> bool:
        """Whether every answer comes in time."""
        return self.deadline == LONG_SECONDS

    @property
    def damages(self) -> bool:
        """Whether files are damaged beyond what a crash or a power cut does."""
        return any(isinstance(fault, Crash) and fault.damage is not None for fault in self.faults)

    @override
    def __str__(self) -> str:
        lines = [f"{self.method}, deadline {self.deadline} s{', restless trainers' if self.restless else ''}"]
        return "\n".join([*lines, *(f"    {fault}" for fault in self.faults)])


def _messages() -> st.SearchStrategy[Fault]:
    mishaps = st.one_of(
        st.builds(
            Mishap, st.just("request"), st.just("again"), seconds=st.sampled_from([0.0, 0.5, 5.0, 60.0])
        ),
        st.builds(
            Mishap,
            st.sampled_from(["request", "response"]),
            st.sampled_from(["cut", "silent"]),
            after=st.one_of(st.just(0), st.integers(0, 1500)),
        ),
        st.builds(
            Mishap,
            st.sampled_from(["request", "response"]),
            st.just("late"),
            seconds=st.sampled_from([0.5, 5.0, 60.0, 120.0]),
        ),
    )
    return st.builds(Message, st.sampled_from(SILOS), st.integers(1, 24), mishaps)


def _damages() -> st.SearchStrategy[Damage]:
    return st.builds(
        Damage, st.sampled_from(["flip", "cut", "zeros", "remove"]), st.integers(0, 40), st.integers(0, 99)
    )


def _crashes(damage: st.SearchStrategy[Damage | None]) -> st.SearchStrategy[Fault]:
    return st.builds(
        Crash,
        st.sampled_from(PARTIES),
        st.integers(1, 120),
        st.booleans(),
        st.booleans(),
        st.sampled_from([1.0, 0.0, 10.0, 100.0]),
        damage,
    )


def _full_disks() -> st.SearchStrategy[Fault]:
    return st.builds(
        FullDisk, st.sampled_from(PARTIES), st.integers(1, 120), st.sampled_from([0.5, 3.0, 30.0])
    )


def plans(damage: bool = False) -> st.SearchStrategy[Plan]:
    """Plans of some faults.

    :param damage: whether files may be damaged.
    """
    damages = st.one_of(st.none(), _damages()) if damage else st.none()
    faults = st.one_of(_messages(), _crashes(damages), _full_disks())
    return st.builds(
        Plan,
        st.sampled_from(METHODS),
        st.sampled_from([LONG_SECONDS, LONG_SECONDS, SHORT_SECONDS]),
        st.booleans(),
        st.lists(faults, min_size=1, max_size=8).map(tuple),
    )
