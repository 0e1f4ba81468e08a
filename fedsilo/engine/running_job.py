"""What a job's status is computed from: the job as it stands, at an aggregator or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.engine.result import Result
from fedsilo.engine.round import OpenRound
from fedsilo.engine.store import JobIdentity
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import Exchange
from fedsilo.readiness.finding import ReadinessFinding


class CurrentExchange(Protocol):
    """The exchange that waits for answers."""

    @property
    def exchange(self) -> Exchange:
        """Its place in the job."""

    @property
    def round(self) -> OpenRound:
        """Who was asked and who answered."""


class RunningJob(Protocol):
    """A job as its status sees it: that of an aggregator, or one in memory."""

    @property
    def identity(self) -> JobIdentity:
        """Which job it is."""

    @property
    def rounds(self) -> int:
        """Number of its last round."""

    @property
    def evaluation(self) -> EvaluationSpec:
        """How it is scored, with by what its best model is chosen."""

    @property
    def main_metric(self) -> str | None:
        """Name of the metric that stands for it; None where only its own learning task knows."""

    @property
    def parameters(self) -> int:
        """Numbers in its model."""

    @property
    def current_exchange(self) -> CurrentExchange | None:
        """The open exchange, if there is one."""

    @property
    def failure(self) -> FedsiloError | None:
        """Why the job failed, once it has."""

    @property
    def result(self) -> Result | None:
        """The model, once it is there."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of its classes, where they are known."""

    @property
    def findings(self) -> Sequence[ReadinessFinding]:
        """What the silos say of their data, where the job asks for that; the gravest first."""

    def history(self) -> list[dict[str, Any]]:
        """One record per completed round."""
