"""Which exchanges a job consists of, and which silos take part in each.

Everything here follows from the manifest, so that a restarted aggregator asks the same silos for the same
things.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from fedsilo.api.job import FederatedJobSpec
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import Exchange, Phase


def rounds_of(phases: Sequence[Phase]) -> list[Exchange]:
    """The exchanges of these phases, one for each round, in order."""
    rounds = [phase for phase in phases for _ in range(phase.rounds)]
    names = [phase.name for phase in rounds]
    return [
        Exchange(phase, number, names[:number].count(phase.name), names.count(phase.name))
        for number, phase in enumerate(rounds, start=1)
    ]


def is_evaluated(spec: FederatedJobSpec, number: int, rounds: int) -> bool:
    """Whether the model is evaluated after this round: every n-th, and always after the last."""
    return number % spec.evaluation.every == 0 or number == rounds


def participants(spec: FederatedJobSpec, exchange: Exchange, silos: Sequence[str]) -> tuple[str, ...]:
    """The silos of an exchange, in the order of the job's references.

    The sample is the ceil(fraction * N) silos with the smallest seed for this round, which is uniform without
    replacement and the same on every machine.
    """
    if exchange.phase.everyone or spec.participation.fraction == 1.0:
        return tuple(silos)
    wanted = spec.participation.sample_size(len(silos))
    drawn = sorted(
        silos, key=lambda silo: derive_seed(spec.training.seed, "participation", exchange.round, silo)
    )
    chosen = set(drawn[:wanted])
    return tuple(silo for silo in silos if silo in chosen)


def answers_may_differ(spec: FederatedJobSpec) -> bool:
    """Whether two exchanges of the job may be answered by different silos."""
    silos = len(spec.silos.refs)
    return spec.participation.quorum(spec.participation.sample_size(silos)) < silos


def task_id(exchange: Exchange, silo: str) -> str:
    """Name of the task of one silo in one exchange, the same after every restart."""
    return f"{exchange_id(exchange)}-{silo.rpartition('/')[2]}"


def is_task_of(task: str, silo: str, exchanges: Container[str]) -> bool:
    """Whether it is the name of a task of this silo.

    :param exchanges: names of all exchanges.
    """
    suffix = f"-{silo.rpartition('/')[2]}"
    return task.endswith(suffix) and task.removesuffix(suffix) in exchanges


def exchange_id(exchange: Exchange) -> str:
    """Name of an exchange."""
    return f"r{exchange.round:05d}-{exchange.phase.name}"
