"""What silos say before they train: the schemata of their data, and how these are where the job asks for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsilo.api.data import DataSpec
from fedsilo.data.schema import Schema
from fedsilo.engine.readiness import ReadinessCheck, readiness_failure
from fedsilo.engine.round import OpenRound
from fedsilo.engine.schemata import SchemaStore
from fedsilo.errors import FedsiloError, Problem
from fedsilo.readiness.announced import AnnouncedFinding, without_own_words
from fedsilo.readiness.finding import ReadinessFinding


@dataclass(frozen=True)
class WaitContext:
    """How the job stands when a silo asks whether it may begin.

    :param round: that is open; None where none is.
    :param first: whether no exchange is complete.
    :param heard: silos that are there.
    :param waited: seconds that the silo has waited so far.
    """

    round: OpenRound | None
    first: bool
    ended: bool
    connected_silos: Collection[str]
    waited: float


class AnnouncementStore:
    """What the silos of one job have said, which outlives a restart.

    :param directory: of the job.
    :param test_set: schema of the aggregator's test set, if it holds one.
    :ivar failure: the job's end, where it ended because of that.
    :raises FileDamaged: when a file is not as it was written.
    """

    def __init__(self, directory: Path, data: DataSpec, test_set: Schema | None) -> None:
        self.failure: FedsiloError | None = None
        self._data = data
        self._schemata = SchemaStore(directory / "schemata.json", data, test_set)
        self._check = ReadinessCheck(directory / "readiness.json", data)
        self._unready: str | None = None  # what silos are told of a failure
        self._findings: tuple[ReadinessFinding, ...] | None = None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, where they are known."""
        return self._schemata.classes

    @property
    def schemata(self) -> Mapping[str, Schema]:
        """Silo -> what it announced, as far as silos did."""
        return self._schemata.by_silo

    @property
    def findings(self) -> tuple[ReadinessFinding, ...]:
        """What is known of all silos' data, where the job asks for that; the gravest first."""
        if self._data.check is None:
            return ()
        if self._findings is None:
            self._findings = self._check.table(self._schemata.by_silo, self._schemata.faults())
        return self._findings

    def announce(self, silo: str, schema: Schema) -> None:
        """Take what a silo says of its data's names and types; it outlives a crash from now on."""
        self._schemata.announce(silo, schema)
        self._findings = None

    def report(self, silo: str, schema: Schema | None, findings: tuple[AnnouncedFinding, ...]) -> None:
        """Take a silo's schema and what it says of its data; a silo whose data cannot be read has no schema."""
        if schema is not None:
            self._schemata.announce(silo, schema)
        self._check.report(silo, findings)
        self._findings = None

    def forget(self) -> None:
        """Let all silos say it anew, when the job is resumed."""
        self._schemata.forget()
        self._check.forget()
        self._findings = None

    def agree(self, moment: WaitContext) -> bool:
        """Whether a silo that has announced its schema may begin; False while others are waited for.

        :raises Problem: `schema-mismatch` when they differ, with which the job has failed, or `job-finished`.
        """
        mismatch = self._schemata.failure()
        if moment.ended and self.failure is None:
            raise Problem("job-finished", "the job has ended; no schema is awaited any more")
        if moment.round is not None and not moment.ended:
            others = set(moment.round.awaited_silos) - {*self._schemata.silos, *self._check.silos}
            if self._schemata.waits(others, moment.connected_silos, moment.round.deadline, moment.waited):
                return False
        if mismatch is not None:
            self.failure = self.failure or mismatch
            raise Problem("schema-mismatch", str(mismatch))
        return True

    def ready(self, moment: WaitContext) -> bool:
        """Whether a silo that has said how its data are may begin; False while others are waited for.

        :raises Problem: `not-ready` when the job has failed of what the silos' data are like; others as `agree`.
        """
        if self._check.refuses and moment.round is not None and not moment.ended:
            if moment.first:
                others = set(moment.round.awaited_silos) - set(self._check.silos)
                if self._check.waits(others, moment.connected_silos, moment.round.deadline, moment.waited):
                    return False
                self.failure = readiness_failure(self.findings)
                if self.failure is not None:
                    self._unready = str(readiness_failure([*map(without_own_words, self.findings)]))
            if self._unready is None:
                self._check.begin()
        if self._unready is not None:
            raise Problem("not-ready", self._unready)
        return self.agree(moment)
