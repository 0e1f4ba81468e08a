"""An exchange whose updates the aggregator sees summed only: the exchanges that take its place.

They follow the rounds of Bonawitz et al. (CCS 2017, Figure 4): silos announce keys, share their secrets with each
other, send masked updates, confirm who is left, and help to take the masks off. The third has the name and the step of
the exchange itself, and is the only one in which trainers have something to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fedsilo.api.job import FederatedJobSpec
from fedsilo.kinds import SECURE_AGGREGATION
from fedsilo.methods.interface import Exchange, Step
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import (
    ANNOUNCEMENT_BYTES,
    CONFIRMATION_BYTES,
    FEWEST_SILOS,
    SumContext,
)
from fedsilo.secure_aggregation.parts import Weights
from fedsilo.secure_aggregation.shamir import SHARE_BYTES
from fedsilo.secure_aggregation.silo_side import SEALED_BYTES
from fedsilo.wire import Contract, ExpectedBlock, VerifyKey

KEYS, SHARES, SURVIVORS, UNMASK = "secure-keys", "secure-shares", "secure-survivors", "secure-unmask"
"""Steps that a guard answers by itself."""

STEPS = (KEYS, SHARES, SURVIVORS, UNMASK)

ANNOUNCED, SEALED, CONFIRMED = "secure.announced", "secure.sealed", "secure.confirmed"
"""Trees that the tasks of later steps hand out: silo -> its announcement, its sealed shares for this silo, and its
confirmation, or nothing before it has confirmed."""

PREFIX = "secure."
"""Begins the names of these trees, which neither a method nor a trainer sees."""

MESSAGE, MASKED = "message", "masked"
"""Names of the block of a protocol's message, and of a masked update."""


def is_summed(spec: FederatedJobSpec, step: str) -> bool:
    """Whether updates of a step are seen in a sum only."""
    return bool(spec.aggregation.secure) and step not in STEPS


def secured(exchange: Exchange) -> Iterator[Exchange]:
    """The exchanges in place of one."""
    for step in (KEYS, SHARES, None, SURVIVORS, UNMASK):
        if step is None:
            yield exchange
        else:
            # A silo's name has no dot, so that no task has the name of another.
            name = f"{exchange.phase.name}.{step.removeprefix('secure-')}"
            yield replace(exchange, phase=replace(exchange.phase, name=name, step=step), of=exchange)


def asks_the_answered(spec: FederatedJobSpec, exchange: Exchange) -> bool:
    """Whether an exchange goes on with the silos that answered the one before."""
    return exchange.phase.step in (SHARES, SURVIVORS, UNMASK) or is_summed(spec, exchange.phase.step)


def sum_context(
    spec: FederatedJobSpec,
    job: str,
    name: str,
    silos: Sequence[str],
    keys: Mapping[str, VerifyKey],
    fewest: int = FEWEST_SILOS,
) -> SumContext:
    """What a sum is of.

    :param job: uid of the job.
    :param name: of the exchange whose updates are summed.
    :param silos: that the exchange draws; its quorum is the threshold.
    :param keys: silo -> the key that signs for it.
    :param fewest: silos of which a sum may be.
    """
    members = {silo: keys[silo] for silo in silos}
    return SumContext(job, name, members, spec.participation.quorum(len(silos)), fewest)


def layout_of(spec: FederatedJobSpec, contract: Contract, weights: str, step: Step) -> Layout:
    """The vector of an update.

    :param contract: of the update itself.
    :param weights: the job's rule of averaging.
    :param step: that it answers.
    """
    rule: Weights = "uniform" if weights == "uniform" else "samples"
    return Layout(contract, len(spec.silos.refs), rule, step.quotient, step.alike & {*contract.metrics})


def masked_contract(layout: Layout) -> Contract:
    """The contract of a masked update: one vector, which says nothing by itself."""
    summed = layout.contract
    block = ExpectedBlock(SECURE_AGGREGATION, MASKED, (layout.size,), "uint64")
    return Contract((block,), schema=summed.schema, algorithm=summed.algorithm, samples=(0, 0), summed=summed)


def message_contract(spec: FederatedJobSpec, step: str) -> Contract:
    """The contract of a guard's message."""
    silos = len(spec.silos.refs)
    size, fixed = {
        KEYS: (ANNOUNCEMENT_BYTES, True),
        SHARES: (SEALED_BYTES * silos, False),
        SURVIVORS: (CONFIRMATION_BYTES, True),
        UNMASK: (SHARE_BYTES * silos, False),
    }[step]
    block = ExpectedBlock(SECURE_AGGREGATION, MESSAGE, (size,), "uint8", at_most=not fixed)
    return Contract((block,), algorithm=spec.digest_algorithm, samples=(0, 0))
