"""What the operator is started with."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """The same for every object that is reconciled.

    :param aggregator_image: image of an aggregator whose job names none; likewise guard and trainer.
    :param namespace: the operator's own.
    :param master: secret from which the keys of all jobs derive, 32 bytes.
    """

    aggregator_image: str
    guard_image: str
    trainer_image: str
    namespace: str
    master: bytes = field(repr=False)
