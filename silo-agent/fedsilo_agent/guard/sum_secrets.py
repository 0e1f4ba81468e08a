"""The silo's side of secure sums: what the guard keeps, and what it answers without the trainer.

What the protocol wants a silo to remember is on the disk before the answer that follows from it is signed, so that a
guard that was killed gives the same answer again, and never another one. Secrets are those of one sum; the next one's
take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.files.durable import make_own_directory, remove
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.secure_aggregation.clipping import Tensor, clipped
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.secure_aggregation.messages import KeyAnnouncement, SumContext
from fedsilo.secure_aggregation.silo_side import SiloSide
from fedsilo.transforms.secure_sum.steps import (
    ANNOUNCED,
    CONFIRMED,
    KEYS,
    PREFIX,
    SEALED,
    SHARES,
    STEPS,
    SURVIVORS,
)
from fedsilo.wire import SigningKey, Task, open_blob, open_update
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.task_check import TaskCheck

MAX_MESSAGE_BYTES = 1 << 20
"""Of what a task of a step hands out in one tree; 256 silos' messages have 45 kB."""

Rows = Mapping[str, Mapping[str, bytes]]
"""Tree of a task -> silo -> what it has sent."""


def is_step(task: Task) -> bool:
    """Whether a guard answers a task by itself."""
    return task.step in STEPS


class SumSecrets:
    """One silo's secrets of the present sum.

    :param directory: that only the guard sees.
    :param key: with which the silo signs.
    """

    def __init__(self, directory: Path, check: TaskCheck, key: SigningKey, client: AggregatorClient) -> None:
        self._directory, self._check, self._key, self._client = directory, check, key, client

    async def fetch(self, task: Task) -> Rows:
        """What the task hands out for the sum.

        :raises PolicyRefused: it is too much, or no messages.
        :raises Problem: it cannot be had.
        """
        found: dict[str, Mapping[str, bytes]] = {}
        for link in task.blobs:
            if not link.name.startswith(PREFIX):
                continue
            if link.length > MAX_MESSAGE_BYTES:
                raise PolicyRefused(
                    f"task {task.task}: {link.name} has {link.length} bytes, more than messages of silos have; "
                    "nothing is sent"
                )
            make_own_directory(self._directory)
            path = self._directory / "fetched"
            await self._client.download(link, path)
            with open_blob(path) as blob:
                found[link.name] = {name: array.tobytes() for name, array in blob.tree().items()}
            remove(path)
        return found

    def message(self, task: Task, rows: Rows) -> bytes:
        """The silo's message of a step, after what it has to remember is on the disk.

        :raises PolicyRefused: what the aggregator hands on is not what silos have sent for this sum, or this silo has
            answered otherwise.
        :raises QuorumLost: too few silos are left.
        :raises FileDamaged: the silo's secrets are not as they were written.
        """
        context = self._check.sum_context(task, self._key)
        side = self._side(context, begins=task.step == KEYS)
        try:
            following, content = self._answer(task.step, context, side, rows)
        except Problem as problem:
            raise PolicyRefused(f"task {task.task}: {problem}") from problem
        self._keep(following)
        return content

    def mask(self, task: Task, rows: Rows, layout: Layout, plain: Path, sent: Path | None) -> np.ndarray:
        """The masked vector of an update; otherwise likewise.

        :param plain: the update as it would leave if single ones might be seen.
        :param sent: file of the model that the silo was sent, if any.
        """
        context = self._check.sum_context(task, self._key)
        side = self._side(context)
        try:
            with open_update(plain) as update:
                header = update.header
                tensor = self._clipped(task, layout, update.tensor, sent)
                names = {entry.name for entry in header.tensors}
                vector = layout.encode(header.samples, header.metrics, names, tensor)
            broadcast = self._check.broadcast(task)
            following, masked = side.masked(_announced(rows), rows.get(SEALED, {}), vector, broadcast)
        except Problem as problem:
            raise PolicyRefused(f"task {task.task}: {problem}") from problem
        self._keep(following)
        return masked

    def _clipped(self, task: Task, layout: Layout, tensor: Tensor, sent: Path | None) -> Tensor:
        """The update's tensors, with the change to the model clipped where the job has a rule for that."""
        rule = self._check.agent.spec.job.spec.aggregation.rule
        if rule is None or rule.norm is None or not layout.model:
            return tensor
        if sent is None:
            raise PolicyRefused(
                f"task {task.task}: hands out no model, of which a silo's change could be clipped"
            )
        return clipped(tensor, layout.model, open_blob(sent).tree(), rule.norm)

    def _answer(self, step: str, context: SumContext, side: SiloSide, rows: Rows) -> tuple[SiloSide, bytes]:
        if step == KEYS:
            return side, side.announcement(self._key).to_bytes()
        if step == SHARES:
            following, shares = side.shares(_announced(rows))
            return following, b"".join(shares[silo] for silo in context.members if silo in shares)
        sealed, stated = rows.get(SEALED, {}), rows.get(CONFIRMED, {})
        survivors = list(stated)
        if step == SURVIVORS:
            return side.confirmation(sealed, survivors, self._key)
        confirmed = {silo: signature for silo, signature in stated.items() if signature}
        found = side.unmasking(_announced(rows), sealed, survivors, confirmed)
        sharers = [silo for silo in context.members if silo == side.silo or silo in sealed]
        return side, found.to_bytes(sharers)

    def _side(self, context: SumContext, begins: bool = False) -> SiloSide:
        path = self._path(context)
        silo = self._check.reference
        kept = read_with_digest(path, "the round goes on without this silo", {"told": dict})
        if kept is None:
            if not begins:
                raise PolicyRefused(
                    f"{path.name}: this silo has no secrets of this sum, which were lost with its volume; the round "
                    "goes on without it"
                )
            return SiloSide.begin(context, silo)
        secrets = {name: bytes.fromhex(kept[name]) for name in ("maskKey", "shareKey", "seed")}
        told = {step: bytes.fromhex(digest) for step, digest in kept["told"].items()}
        return SiloSide.from_dict(context, silo, {**secrets, "told": told})

    def _keep(self, side: SiloSide) -> None:
        make_own_directory(self._directory)
        path = self._path(side.context)
        for other in self._directory.iterdir():
            if other != path:
                remove(other)
        document = side.to_dict()
        told = {step: digest.hex() for step, digest in document.pop("told").items()}
        write_with_digest(path, {name: secret.hex() for name, secret in document.items()} | {"told": told})

    def _path(self, context: SumContext) -> Path:
        return self._directory / f"{context.exchange}.json"


def _announced(rows: Rows) -> dict[str, KeyAnnouncement]:
    return {silo: KeyAnnouncement.from_bytes(content) for silo, content in rows.get(ANNOUNCED, {}).items()}
