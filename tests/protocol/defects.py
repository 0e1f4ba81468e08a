"""Defects of the product, made on purpose: the model must find each of them, or it is a decoration.

Each is a patch, as a change of the code might have been, and plans of the kind of fault that the code is there for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from fedsilo.engine import exchange
from fedsilo.methods.state import State
from fedsilo.silo import drop
from fedsilo.silo.private_state import PrivateStateStore
from fedsilo.wire import AcceptedUpdate, blob, open_update, signed_part, update_digest
from fedsilo_agent.guard import audit
from fedsilo_agent.guard.audit import AuditRecord
from fedsilo_aggregator import uploads
from fedsilo_aggregator.http import AggregatorService
from fedsilo_aggregator.uploads import UploadStore
from tests.protocol.plan import LONG_SECONDS, METHODS, SILOS, Crash, Damage, Fault, Message, Mishap, Plan
from tests.protocol.specification import run, undisturbed_outcome

SLOW_MESSAGE = Message("south", 3, Mishap("response", "late", seconds=60.0))
"""The other silo has answered long before: what happens to its answer meanwhile matters."""


@dataclass(frozen=True)
class Defect:
    """A defect and where to look for it.

    :param owner: of the function that is replaced.
    :param replacement: the defective one.
    :param plans: in which it may show.
    """

    owner: Any
    name: str
    replacement: Callable[..., Any]
    plans: st.SearchStrategy[Plan]


def find_plan(defect: Defect, examples: int, shrink: bool = False) -> Plan | None:
    """A plan that shows the defect, of so many that are tried; the same ones each time.

    :param shrink: look for the shortest.
    """
    for method in METHODS:
        undisturbed_outcome(method, LONG_SECONDS)
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(defect.owner, defect.name, defect.replacement))
        try:
            return find(
                defect.plans,
                _is_broken,
                settings=settings(
                    max_examples=examples,
                    phases=phases,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
                random=random.Random(0),
            )
        except NoSuchExample:
            return None


def _is_broken(plan: Plan) -> bool:
    try:
        run(plan)
    except AssertionError:
        return True
    return False


def _plans(*faults: st.SearchStrategy[Fault], method: str = "averaging") -> st.SearchStrategy[Plan]:
    return st.builds(Plan, st.just(method), faults=st.tuples(*faults))


def _crashes(party: str, *, power: bool = False, steps: int = 70, damage: Damage | None = None) -> Any:
    return st.builds(
        Crash,
        st.just(party),
        st.integers(1, steps),
        st.booleans(),
        st.just(power),
        st.just(1.0),
        st.just(damage),
    )


def _flipped_answers() -> st.SearchStrategy[Plan]:
    crash = st.builds(
        Crash,
        st.just("aggregator"),
        st.integers(60, 70),
        damage=st.builds(Damage, st.just("flip"), st.integers(3, 6), st.integers(60, 99)),
    )
    return _plans(st.just(SLOW_MESSAGE), crash)


def _newest_state(states: PrivateStateStore, acknowledged: str | None) -> State:
    """The state of the last reply, whether or not it was acknowledged."""
    stored = sorted(path for path in states.directory.iterdir() if path.is_dir())
    return states._read(stored[-1]) if stored else State()


def _unchecked_update(path: Path, *_: object) -> AcceptedUpdate:
    """Whatever is in the file."""
    with open_update(path) as update:
        return AcceptedUpdate(update.header, update_digest(signed_part(path)))


def _append_unsynced(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def _flush(file: Any, path: Path) -> None:
    file.flush()


def _repeated_plans() -> st.SearchStrategy[Plan]:
    again = st.builds(
        Message,
        st.sampled_from(SILOS),
        st.integers(5, 12),
        st.builds(Mishap, st.just("request"), st.just("again")),
    )
    return _plans(st.just(SLOW_MESSAGE), again)


DEFECTS = {
    "private state advances before the acknowledgement": Defect(
        PrivateStateStore, "load", _newest_state, _plans(_crashes("north trainer"), method="chain")
    ),
    "private state goes back": Defect(
        AuditRecord, "acknowledged_before", lambda *_: None, _plans(_crashes("north guard"), method="chain")
    ),
    "an update is acknowledged before it is durable": Defect(
        uploads, "sync", lambda *_: None, _plans(st.just(SLOW_MESSAGE), _crashes("aggregator", power=True))
    ),
    "what a restart finds is counted unchecked": Defect(
        exchange, "check_update", _unchecked_update, _flipped_answers()
    ),
    "an update that was accepted is taken again": Defect(
        UploadStore, "is_accepted", lambda *_: False, _repeated_plans()
    ),
    "the line of a departure is not synced": Defect(
        audit, "append_durably", _append_unsynced, _plans(_crashes("north guard", power=True))
    ),
    "a torn answer of a trainer is taken for a whole one": Defect(
        drop, "holds_digest", lambda *_: True, _plans(_crashes("north guard", power=True, steps=45))
    ),
    "the state is not synced": Defect(blob, "sync", _flush, _plans(_crashes("aggregator", power=True))),
    "a silo whose answer was lost is not asked again": Defect(
        AggregatorService, "_is_given", lambda _, _silo, task, after, _vain: task != after, _flipped_answers()
    ),
}
