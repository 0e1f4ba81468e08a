"""What must hold of every run, however much went wrong in it.

update      signed by the guard, and on record at the silo, before anybody else has it
accepted    the first durable update of a task; it is accepted once, or once more where the aggregator has lost it
counted     folded into the state: what was accepted, all of it, once for each silo and exchange
acknowledged    known to the guard as accepted: from then on, it is what counts
private     the silo's private state: advances with each acknowledged update, and with nothing else
the end     a model, the same as if nothing had happened where every silo answered every round; or an error that
            names what is lost. It comes in bounded time, and no process ever ends of anything else.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fedsilo.errors import FedsiloError, FileDamaged, JobFailed
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.private_state import PrivateStateStore
from fedsilo_agent.guard import audit
from tests.protocol.plan import SILOS, Plan
from tests.protocol.world import World, place


@dataclass(frozen=True)
class Outcome:
    """What a run leaves.

    :param model: bytes of the model; None where there is none.
    :param counted: exchange -> task -> digest of the update that counts.
    :param private: silo -> token of its private state.
    """

    model: bytes | None
    counted: Mapping[str, Mapping[str, str]]
    private: Mapping[str, int | None]

    @classmethod
    def of(cls, world: World) -> Outcome:
        """The outcome of a run that is over."""
        directory = world.disks["aggregator"].root
        model, history = directory / "model.safetensors", directory / "history.jsonl"
        counted: dict[str, dict[str, str]] = {}
        for line in history.read_bytes().splitlines() if history.exists() else ():
            for task, digest in json.loads(line)["updates"].items():
                counted.setdefault(task.rpartition("-")[0], {})[task] = digest
        content = model.read_bytes() if model.exists() else None
        return cls(content, counted, {silo: _token(world, silo) for silo in SILOS})


def _token(world: World, silo: str) -> int | None:
    acknowledged = [line["task"] for line in world.audit(silo) if line["event"] == "acknowledged"]
    if not acknowledged:
        return None
    state = PrivateStateStore(world.disks[silo].root / "state")
    try:
        token: int | None = state._read(state.directory / acknowledged[-1]).values.get("token")
    except FileDamaged:
        return None
    return token


@functools.cache
def undisturbed_outcome(method: str, deadline: int) -> Outcome:
    """The outcome of a run in which nothing goes wrong."""
    with place() as directory:
        world = World(Plan(method, deadline), directory)
        world.run()
        return Outcome.of(world)


def violations(world: World) -> Iterator[str]:
    """Everything about a run that is over and should not be."""
    try:
        outcome = Outcome.of(world)
    except (ValueError, KeyError, OSError) as error:
        if not world.damaged("aggregator"):
            yield f"the outcome cannot be read: {error!r}"
        return
    yield from world.seen.defects
    yield from _ends(world)
    yield from _signing(world)
    yield from _counting(world, outcome)
    yield from _token_faults(world, outcome)
    yield from _the_end(world, outcome)


def _ends(world: World) -> Iterator[str]:
    """A process ends well, or with an error that names what a person has damaged or what the job lacks."""
    for party, process in world.processes.items():
        error = process.error
        if error is None or (isinstance(error, JobFailed) and party == "aggregator"):
            continue
        if not isinstance(error, FedsiloError):
            yield f"{party} ended with {error!r}"
        elif not world.damaged(party.split()[0]):
            yield f"{party} ended with {error!r}, although nothing was damaged"


def _signing(world: World) -> Iterator[str]:
    """What leaves is on record before, and one content for each task."""
    for acceptance in world.seen.accepted:
        if not acceptance.on_record and not world.damaged(acceptance.silo, "audit"):
            yield f"{acceptance.task}: accepted {acceptance.digest[:8]}, of which the audit log had no departure"
    for silo in SILOS:
        if world.damaged(silo, "audit"):
            continue
        try:
            audit.verify(world.disks[silo].root / "audit" / "log.jsonl")
        except AuditBroken as broken:
            yield f"{silo}: {broken}"
        tasks = [line["task"] for line in world.audit(silo) if line["event"] == "departure"]
        for task in dict.fromkeys(tasks):
            contents = set(world.departures(silo, task))
            if len(contents) > 1:
                yield f"{task}: {len(contents)} contents were signed"
        departures = {digest for task in tasks for digest in world.departures(silo, task)}
        for acceptance in world.seen.accepted:
            if acceptance.silo == silo and acceptance.digest not in departures:
                yield f"{acceptance.task}: accepted {acceptance.digest[:8]} has lost its line in the audit log"


def _counting(world: World, outcome: Outcome) -> Iterator[str]:
    """What counts is what was accepted, once, and what was acknowledged counts."""
    accepted: dict[str, list[str]] = {}
    for acceptance in world.seen.accepted:
        accepted.setdefault(acceptance.task, []).append(acceptance.digest)
    for task, digests in accepted.items():
        if len(digests) > 1 and not (world.lost_power("aggregator") or world.damaged("aggregator")):
            yield f"{task}: {len(digests)} updates were accepted"
    for acceptance in world.seen.accepted:
        if acceptance.acknowledged and not world.damaged("aggregator"):
            yield f"{acceptance.task}: acknowledged, lost and accepted again"
    for folded in world.seen.folded:
        for task, digest in folded.items():
            if digest not in accepted.get(task, ()):
                yield f"{task}: folded {digest[:8]}, which was never accepted"
    last = {frozenset(task.rpartition("-")[0] for task in folded): folded for folded in world.seen.folded}
    for exchange, updates in outcome.counted.items():
        if last.get(frozenset({exchange})) != updates:
            yield f"{exchange}: counted {updates}, folded {last.get(frozenset({exchange}))}"
    yield from _acknowledgement_faults(world, outcome, accepted)


def _acknowledgement_faults(
    world: World, outcome: Outcome, accepted: Mapping[str, list[str]]
) -> Iterator[str]:
    if world.damaged("aggregator"):
        return
    for silo in SILOS:
        for line in world.audit(silo):
            if line["event"] != "acknowledged":
                continue
            task, digest = line["task"], line["digest"]
            exchange = task.rpartition("-")[0]
            if digest not in accepted.get(task, ()):
                yield f"{task}: acknowledged {digest[:8]}, which was never accepted"
            if exchange in outcome.counted and outcome.counted[exchange].get(task) != digest:
                yield f"{task}: acknowledged {digest[:8]}, and something else or nothing counts"


def _token_faults(world: World, outcome: Outcome) -> Iterator[str]:
    """Each link that counts begins at the token with which the one before it ended."""
    links = {acceptance.digest: acceptance.link for acceptance in world.seen.accepted}
    for silo in SILOS:
        if world.damaged(silo, "audit") or world.damaged("aggregator"):
            continue
        if world.plan.restless and world.damaged(silo):
            continue  # a damaged drop that was sent before is computed again, to another state: docs/architecture.md
        token = 0
        for updates in outcome.counted.values():
            for task, digest in updates.items():
                link = links.get(digest)
                if link is None or not task.endswith(f"-{silo}"):
                    continue
                if link[0] != token:
                    yield f"{task}: computed from private state {link[0]}, the silo's last answer left {token}"
                token = link[1]
        kept = outcome.private[silo]
        if token and kept != token and outcome.model is not None and not world.damaged(silo):
            yield f"{silo}: its private state is {kept} in the end, its last answer left {token}"


def _the_end(world: World, outcome: Outcome) -> Iterator[str]:
    """A model, with all answers unless time or a file was lost."""
    model, expected = outcome.model, undisturbed_outcome(world.plan.method, world.plan.deadline)
    if world.plan.generous and not world.plan.damages:
        if model is None:
            yield "there is no model, although there was time for every answer"
        elif _tasks(outcome) != _tasks(expected):
            missing = {task for tasks in _tasks(expected).values() for task in tasks} - {
                task for tasks in _tasks(outcome).values() for task in tasks
            }
            yield f"answers of {sorted(missing)} are missing, although there was time for them"
    complete = model is not None and _tasks(outcome) == _tasks(expected)
    if complete and not world.plan.restless and outcome != replace(expected, private=outcome.private):
        yield "every silo answered every round, and the model is another one than without faults"


def _tasks(outcome: Outcome) -> dict[str, set[str]]:
    return {exchange: set(updates) for exchange, updates in outcome.counted.items()}


def require(world: World) -> None:
    """Fail with the run's story if it breaks the specification.

    :raises AssertionError: with the plan, what happened, and what should not have.
    """
    found = list(dict.fromkeys(violations(world)))
    if found:
        texts = [
            f"\n{world.plan}\n",
            *world.seen.story,
            "",
            *_logs(world),
            "",
            *(f"VIOLATED: {it}" for it in found),
        ]
        raise AssertionError("\n".join(texts))


def _logs(world: World) -> Iterator[str]:
    for silo in SILOS:
        for line in world.audit(silo):
            told = [line.get(name, "") for name in ("task", "digest", "code", "reason", "detail")]
            yield f"{silo}'s log: {' '.join(text[:80] for text in [line['event'], *told] if text)}"


def run(plan: Plan) -> World:
    """Run a plan and hold it to the specification.

    :raises AssertionError: see `require`.
    """
    undisturbed_outcome(plan.method, plan.deadline)
    with place() as directory:
        world = World(plan, directory)
        world.run()
        require(world)
    return world
