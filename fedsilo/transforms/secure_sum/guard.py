"""Secure sums in the guard: what a silo keeps secret, and what it answers without the trainer.

What the protocol wants a silo to remember is on the disk before the answer that follows from it is signed, so that a
guard that was killed gives the same answer again, and never another one. Secrets are those of the present sum, and from
its last message on also those of the next one that this silo takes part in; when that begins, it has none but these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from typing_extensions import override

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.files.durable import make_own_directory, remove
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method, declaring
from fedsilo.methods.schedule import answers_may_differ, exchange_id, participants
from fedsilo.methods.state import Tree
from fedsilo.secure_aggregation.clipping import Tensor, clipped_model
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import KeyAnnouncement, SumContext
from fedsilo.secure_aggregation.silo_side import SiloSide
from fedsilo.transforms.guard import GuardIdentity, GuardSide, Messages
from fedsilo.transforms.secure_sum.steps import (
    ANNOUNCED,
    CONFIRMED,
    KEYS,
    SEALED,
    SHARES,
    SURVIVORS,
    UNMASK,
    broadcast_digest,
    fewest_summed,
    is_summed,
    layout_of,
    model_digest,
    next_sums,
    sum_context,
)
from fedsilo.wire import Contract, Task, open_blob, open_update


class SecureSumGuardSide(GuardSide):
    """One silo's secrets of the present sum and of its next one."""

    def __init__(self, method: Method, silo: str, own: GuardIdentity) -> None:
        self._method, self._silo, self._own = method, silo, own

    @override
    def answered_once(self, task: Task) -> str | None:
        """Digest of the model that a task hands out, of which no second sum may be; None where that does no harm."""
        spec = self._method.spec
        return model_digest(task) if is_summed(spec, task.step) and answers_may_differ(spec) else None

    @override
    def message(self, task: Task, messages: Messages) -> bytes:
        """The silo's message of a step, after what it has to remember is on the disk.

        :raises PolicyRefused: what the aggregator hands on is not what silos have sent for this sum, or this silo has
            answered otherwise.
        :raises QuorumLost: too few silos are left.
        :raises FileDamaged: the silo's secrets are not as they were written.
        """
        whole = self._summed_exchange(task)
        context = self._context(whole)
        side = self._side(context, begins=task.step == KEYS)
        with _refusing(task):
            following, content = self._answer(task.step, context, side, messages)
        if task.step == UNMASK:  # after which a silo has nothing more to remember of a sum
            return content + self._next_announcement(whole)
        self._keep(following)
        return content

    @override
    def replacement_vector(
        self, task: Task, messages: Messages, contract: Contract, update: Path, model: Path | None
    ) -> np.ndarray:
        """The masked vector of an update, errors as `message`."""
        context, layout = self._context(self._summed_exchange(task)), layout_of(self._method, contract)
        side = self._side(context)
        with _refusing(task):
            sent = {} if model is None else open_blob(model).tree()
            with open_update(update) as opened:
                header = opened.header
                tensor = self._clipped_tensor(task, layout, opened.tensor, sent)
                names = {entry.name for entry in header.tensors}
                vector = layout.encode(header.samples, header.metrics, names, tensor, sent)
            broadcast = self.broadcast(task)
            following, masked = side.mask_vector(
                _announced_keys(messages), messages.get(SEALED, {}), vector, broadcast
            )
        self._keep(following)
        return masked

    def broadcast(self, task: Task) -> bytes:
        """SHA-256 of what a task of a sum hands out to all silos alike.

        :raises PolicyRefused: settings that are this silo's own are not those that follow from the job.
        :raises MethodError: when a third party's declaration fails.
        """
        with declaring(self._method):
            own = self._method.silo_settings(self._own.exchange_of(task), self._silo)
        for name, value in own.items():
            if (given := task.settings.get(name)) != value:
                raise PolicyRefused(
                    f"task {task.task}: setting {name} is {given!r}; the job says {value!r} for this silo; nothing is "
                    "sent"
                )
        return broadcast_digest(task, own)

    def _summed_exchange(self, task: Task) -> Exchange:
        """The exchange whose updates the sum is of that a task is a step of."""
        exchange = self._own.exchange_of(task)
        return exchange.of or exchange

    def _context(self, whole: Exchange) -> SumContext:
        """What a sum is of: the silos of the round with the keys that this agent holds.

        :raises PolicyRefused: the agent does not say whose keys count, or has another key of this silo.
        """
        spec, own = self._method.spec, self._own
        if own.members.get(self._silo) != own.key.verify_key:
            raise PolicyRefused(
                f"spec.trust.members: has another key of {self._silo} than it signs with; nothing is sent"
            )
        drawn = participants(spec, whole, tuple(own.members))
        try:
            fewest = fewest_summed(self._method)
            return sum_context(spec, own.job, exchange_id(whole), drawn, own.members, fewest)
        except Problem as problem:
            raise PolicyRefused(str(problem)) from problem

    def _next_announcement(self, whole: Exchange) -> bytes:
        """The silo's announcement for its next sum, after its secrets are on the disk; empty where there is none."""
        own, silo = self._own, self._silo
        following = next_sums(self._method.spec, whole, own.exchanges, tuple(own.members), (silo,))
        if silo not in following:
            return b""
        side = self._side(self._context(following[silo]), begins=True)
        self._write(side)
        return side.announcement(own.key).to_bytes()

    def _clipped_tensor(self, task: Task, layout: Layout, tensor: Tensor, sent: Tree) -> Tensor:
        """The update's tensors, with the change to the model clipped where the job has a rule for that."""
        rule = self._method.spec.aggregation.rule
        if rule is None or rule.norm is None or not layout.model:
            return tensor
        if not sent:
            raise PolicyRefused(
                f"task {task.task}: hands out no model, of which a silo's change could be clipped"
            )
        return clipped_model(tensor, layout.model, sent, rule.norm)

    def _answer(
        self, step: str, context: SumContext, side: SiloSide, messages: Messages
    ) -> tuple[SiloSide, bytes]:
        if step == KEYS:
            return side, side.announcement(self._own.key).to_bytes()
        if step == SHARES:
            following, shares = side.shares(_announced_keys(messages))
            return following, b"".join(shares[silo] for silo in context.members if silo in shares)
        sealed, stated = messages.get(SEALED, {}), messages.get(CONFIRMED, {})
        survivors = list(stated)
        if step == SURVIVORS:
            return side.confirmation(sealed, survivors, self._own.key)
        confirmed = {silo: signature for silo, signature in stated.items() if signature}
        found = side.unmasking(_announced_keys(messages), sealed, survivors, confirmed)
        sharers = [silo for silo in context.members if silo == side.silo or silo in sealed]
        return side, found.to_bytes(sharers)

    def _side(self, context: SumContext, begins: bool = False) -> SiloSide:
        path = self._path(context)
        kept = read_with_digest(path, "the round goes on without this silo", {"told": dict})
        if kept is None:
            if not begins:
                raise PolicyRefused(
                    f"{path.name}: this silo has no secrets of this sum, which were lost with its volume; the round "
                    "goes on without it"
                )
            return SiloSide.begin(context, self._silo)
        secrets = {name: bytes.fromhex(kept[name]) for name in ("maskKey", "shareKey", "seed")}
        told = {step: bytes.fromhex(digest) for step, digest in kept["told"].items()}
        return SiloSide.from_dict(context, self._silo, {**secrets, "told": told})

    def _keep(self, side: SiloSide) -> None:
        """Have the silo's state in a sum on the disk, and nothing of the sums before."""
        directory, path = self._own.directory, self._path(side.context)
        for other in directory.iterdir() if directory.is_dir() else ():
            if other != path:
                remove(other)
        self._write(side)

    def _write(self, side: SiloSide) -> None:
        path = self._path(side.context)
        make_own_directory(path.parent)
        document = side.to_dict()
        told = {step: digest.hex() for step, digest in document.pop("told").items()}
        write_with_digest(path, {name: secret.hex() for name, secret in document.items()} | {"told": told})

    def _path(self, context: SumContext) -> Path:
        return self._own.directory / f"{context.exchange}.json"


@contextmanager
def _refusing(task: Task) -> Iterator[None]:
    """A block in which a problem of the protocol is a refusal of the task."""
    try:
        yield
    except Problem as problem:
        raise PolicyRefused(f"task {task.task}: {problem}") from problem


def _announced_keys(messages: Messages) -> dict[str, KeyAnnouncement]:
    return {
        silo: KeyAnnouncement.from_bytes(content) for silo, content in messages.get(ANNOUNCED, {}).items()
    }
