"""An exchange whose updates the aggregator sees summed only: the exchanges that take its place.

They follow the rounds of Bonawitz et al. (CCS 2017, Figure 4): silos announce keys, share their secrets with each
other, send masked updates, confirm who is left, and help to take the masks off. The third has the name and the step of
the exchange itself, and is the only one in which trainers have something to do.

With the last message of a sum a silo announces its keys for the next one in which it takes part. So the exchange for
keys is passed over, except where a silo of the sum has not done that: in the first sum, and after it dropped out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from fedsilo.api.job import FederatedJobSpec
from fedsilo.canonical import canonical_json
from fedsilo.errors import MethodError
from fedsilo.methods.interface import INITIAL_WEIGHTS, PREPROCESSING, Assignment, Exchange
from fedsilo.methods.method import Method, averaging_of
from fedsilo.methods.schedule import answers_may_differ, participants
from fedsilo.methods.state import Scalar
from fedsilo.payload_kinds import SECURE_AGGREGATION
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import (
    ANNOUNCEMENT_BYTES,
    CONFIRMATION_BYTES,
    FEWEST_OF_TWO_SUMS,
    FEWEST_SILOS,
    SumContext,
)
from fedsilo.secure_aggregation.parts import Weights
from fedsilo.secure_aggregation.shamir import SHARE_BYTES
from fedsilo.secure_aggregation.silo_side import SEALED_BYTES
from fedsilo.wire import Contract, ExpectedBlock, Task, VerifyKey
from fedsilo.wire.combine import BlockMean

KEYS, SHARES, SURVIVORS, UNMASK = "secure-keys", "secure-shares", "secure-survivors", "secure-unmask"
"""Steps that a guard answers by itself."""

STEPS = (KEYS, SHARES, SURVIVORS, UNMASK)

ANNOUNCED, SEALED, CONFIRMED = "secure.announced", "secure.sealed", "secure.confirmed"
"""Trees that the tasks of later steps hand out: silo -> its announcement, its sealed shares for this silo, and its
confirmation, or nothing before it has confirmed."""

AHEAD = "secure.ahead"
"""Tree of the state, which no task hands out: silo -> its announcement for the next sum in which it takes part."""

PREFIX = "secure."
"""Begins the names of these trees, which neither a method nor a trainer sees."""

MESSAGE, MASKED = "message", "masked"
"""Names of the block of a protocol's message, and of a masked update."""


def is_summed(spec: FederatedJobSpec, step: str) -> bool:
    """Whether updates of a step are seen in a sum only."""
    return bool(spec.aggregation.secure) and step not in STEPS


def secure_exchanges(exchange: Exchange) -> Iterator[Exchange]:
    """The exchanges in place of one."""
    for step in (KEYS, SHARES, None, SURVIVORS, UNMASK):
        if step is None:
            yield exchange
        else:
            # A silo's name has no dot, so that no task has the name of another.
            name = f"{exchange.phase.name}.{step.removeprefix('secure-')}"
            yield replace(exchange, phase=replace(exchange.phase, name=name, step=step), of=exchange)


def may_be_passed_over(exchange: Exchange) -> bool:
    """Whether an exchange is not needed where all its silos have announced in earlier sums what it asks for."""
    return exchange.phase.step == KEYS


def next_sums(
    spec: FederatedJobSpec,
    whole: Exchange,
    exchanges: Sequence[Exchange],
    silos: Sequence[str],
    wanted: Collection[str],
) -> Mapping[str, Exchange]:
    """The next sum after one in which each silo takes part; silos without another one are not among them.

    :param whole: exchange whose updates are summed.
    :param exchanges: of the job.
    :param silos: of the job, in its order.
    :param wanted: silos that are asked about.
    """
    found: dict[str, Exchange] = {}
    for later in sums_after(whole, exchanges):
        if len(found) == len(wanted):
            break
        drawn = participants(spec, later, silos)
        found |= {silo: later for silo in drawn if silo in wanted and silo not in found}
    return found


def sums_after(whole: Exchange, exchanges: Sequence[Exchange]) -> Sequence[Exchange]:
    """The exchanges of a job whose updates are summed, from the one that follows."""
    sums = [exchange for exchange in exchanges if exchange.of is None]
    return sums[sums.index(whole) + 1 :]


def continues_with_responders(spec: FederatedJobSpec, exchange: Exchange) -> bool:
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


def sums_text(spec: FederatedJobSpec) -> str:
    """Over which silos the job's sums are, for people who write it or decide on it."""
    silos = len(spec.silos.refs)
    if not answers_may_differ(spec):
        return f"the aggregator learns sums over all {silos} silos"
    asked = spec.participation.sample_size(silos)
    least = spec.participation.quorum(asked)
    some = f"{asked}" if least == asked else f"{least} to {asked}"
    noise = ", with its noise" if spec.privacy.differential_privacy else ""
    return (
        f"the aggregator learns sums over {some} of {silos} silos; where two differ by one silo, it sees what that one "
        f"has sent{noise}"
    )


def model_digest(task: Task) -> str | None:
    """Digest of the model that a task hands out; of all its trees where there is no model, and None without any.

    Trees that are the same in every round do not count: initial weights, and numbers of the preprocessing.
    """
    blobs = {link.name: link.digest for link in task.blobs if not link.name.startswith(PREFIX)}
    if "model" in blobs:
        return blobs["model"]
    varying = {name: digest for name, digest in blobs.items() if name not in (INITIAL_WEIGHTS, PREPROCESSING)}
    return hashlib.sha256(canonical_json(varying)).hexdigest() if varying else None


def broadcast_digest(task: Task, own: Collection[str]) -> bytes:
    """SHA-256 of what a task hands out to every silo of its exchange: trees and settings.

    :param own: settings that are this silo's own, which its guard derives, see `Method.silo_settings`.
    """
    blobs = {link.name: link.digest for link in task.blobs if not link.name.startswith(PREFIX)}
    settings = {name: value for name, value in task.settings.items() if name not in own}
    return hashlib.sha256(canonical_json({"blobs": blobs, "settings": settings})).digest()


def require_one_broadcast(
    method: str, assigned: Mapping[str, Assignment], own: Mapping[str, Mapping[str, Scalar]]
) -> None:
    """Return if all silos of an exchange whose updates are summed are assigned the same, but for settings of their own.

    :param own: silo -> settings that its guard derives, see `Method.silo_settings`.
    :raises MethodError: naming what differs: masks of such silos would not cancel.
    """
    first: Assignment | None = None
    for silo, given in assigned.items():
        settings = {name: value for name, value in given.settings.items() if name not in own[silo]}
        common = Assignment(dict(given.trees), settings)
        first = first or common
        stated = {name: given.settings.get(name) for name in own[silo]}
        if common != first or stated != own[silo]:
            raise MethodError(
                f"method {method} assigns {silo} other trees or settings than its declaration says: {stated} and "
                f"{common}; with spec.aggregation.secure all silos get the same, but for what silo_settings declares"
            )


def layout_of(method: Method, contract: Contract) -> Layout:
    """The vector in which the updates of an exchange are summed.

    :param contract: of an update by itself.
    """
    rule: Weights = "uniform" if averaging_of(method) == "uniform" else "samples"
    return Layout(contract, len(method.spec.silos.refs), rule)


def fewest_summed(method: Method) -> int:
    """Silos of which a sum must be, so that none of them knows of another what it sent."""
    divides = any(
        isinstance(payload.combine, BlockMean) and payload.combine.over is not None
        for step in method.steps().values()
        for payload in step.payloads
    )
    return FEWEST_OF_TWO_SUMS if divides else FEWEST_SILOS


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
        UNMASK: (SHARE_BYTES * silos + ANNOUNCEMENT_BYTES, False),
    }[step]
    block = ExpectedBlock(SECURE_AGGREGATION, MESSAGE, (size,), "uint8", at_most=not fixed)
    return Contract((block,), algorithm=spec.digest_algorithm, samples=(0, 0))
