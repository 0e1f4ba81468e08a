"""The check before round 1: what every silo has told of its data, and whether the job may begin.

Where the job refuses data with errors, no silo begins before all that are asked have told theirs, or had their time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsilo.api.data import DataSpec
from fedsilo.data.comparison import SchemaFault
from fedsilo.data.schema import Schema, feature_names
from fedsilo.engine.schemata import ABSENT_SECONDS, ABSENT_SHARE
from fedsilo.errors import DataInvalid, FileDamaged, SiloFailed
from fedsilo.files.durable import unlink
from fedsilo.files.json_files import Fields, read_with_digest, write_with_digest
from fedsilo.readiness.announced import MAGNITUDES, AnnouncedFinding, announced_findings, describe_finding
from fedsilo.readiness.finding import SEVERITY, ReadinessFinding, ordered_findings
from fedsilo.readiness.units import unit_differences

CHECK_SHARE = 0.5
"""Share of the round's deadline for which silos that are there are waited for: they read all their data meanwhile."""

_FIELDS: Fields = {"silos": dict, "begun": bool}
_REMEDY = "remove it: silos tell theirs when their guards are started again"


class ReadinessCheck:
    """The findings of one job's silos, which outlive a restart.

    :raises FileDamaged: when the file is not as it was written.
    """

    def __init__(self, path: Path, data: DataSpec) -> None:
        self._path = path
        self._data = data
        self._findings, self._begun = self._read()

    @property
    def refuses(self) -> bool:
        """Whether the job has to wait for all silos: it has not begun, and an error ends it."""
        return self._data.check == "refuse" and not self._begun

    @property
    def silos(self) -> Collection[str]:
        """Silos that have told theirs."""
        return self._findings.keys()

    def report(self, silo: str, findings: tuple[AnnouncedFinding, ...]) -> None:
        """Take a silo's findings; they outlive a crash from now on."""
        if self._findings.get(silo) != findings:
            self._write(self._findings | {silo: findings}, self._begun)

    def begin(self) -> None:
        """Let silos begin to train; whatever they find later is told, and ends nothing."""
        self._write(self._findings, begun=True)

    def forget(self) -> None:
        """Let all silos tell theirs anew, when the job is resumed."""
        unlink(self._path, missing_ok=True)
        self._findings, self._begun = {}, False

    def waits(self, others: Collection[str], heard: Collection[str], deadline: float, waited: float) -> bool:
        """Whether to wait for silos that have not told theirs; arguments as those of `SchemaStore.waits`."""
        if set(others) & set(heard):
            return waited < CHECK_SHARE * deadline
        return bool(others) and waited < min(ABSENT_SECONDS, ABSENT_SHARE * deadline)

    def table(
        self, schemata: Mapping[str, Schema], faults: Mapping[str, Sequence[SchemaFault]]
    ) -> tuple[ReadinessFinding, ...]:
        """All findings of all silos, the gravest first.

        :param schemata: of the silos, as far as they are known.
        :param faults: owner -> where its schema differs.
        """
        return readiness_table(self._data, self._findings, schemata, faults)

    def _read(self) -> tuple[dict[str, tuple[AnnouncedFinding, ...]], bool]:
        found = read_with_digest(self._path, _REMEDY, _FIELDS) or {"silos": {}, "begun": False}
        try:
            told = {silo: announced_findings(value, self._data) for silo, value in found["silos"].items()}
        except DataInvalid as error:
            raise FileDamaged(f"{self._path}: is not the file of this name ({error}); {_REMEDY}") from error
        return told, found["begun"]

    def _write(self, findings: dict[str, tuple[AnnouncedFinding, ...]], begun: bool) -> None:
        silos: dict[str, Any] = {silo: [one.to_dict() for one in found] for silo, found in findings.items()}
        write_with_digest(self._path, {"silos": silos, "begun": begun})
        self._findings, self._begun = findings, begun


def readiness_table(
    data: DataSpec,
    told: Mapping[str, Sequence[AnnouncedFinding]],
    schemata: Mapping[str, Schema],
    faults: Mapping[str, Sequence[SchemaFault]],
) -> tuple[ReadinessFinding, ...]:
    """All findings of all silos in words; see `ReadinessCheck.table`.

    :param told: by silo.
    """
    found = [
        describe_finding(finding, silo, data, schemata.get(silo))
        for silo, findings in sorted(told.items())
        for finding in findings
        if finding.code != MAGNITUDES
    ]
    magnitudes = {
        silo: finding.magnitudes
        for silo, findings in sorted(told.items())
        for finding in findings
        if finding.code == MAGNITUDES
    }
    known = next((schemata[silo] for silo in magnitudes if silo in schemata), Schema())
    units = unit_differences(magnitudes, feature_names(known, data.input_shape[0]))
    return tuple(ordered_findings([*differences(faults), *units, *found]))


def differences(faults: Mapping[str, Sequence[SchemaFault]]) -> list[ReadinessFinding]:
    """Differences of schemata as findings."""
    return [
        ReadinessFinding(
            "SchemaDiffers",
            SEVERITY["SchemaDiffers"],
            owner.removeprefix("silo "),
            fault.place,
            fault.problem,
            fault.remedy,
        )
        for owner, found in faults.items()
        for fault in found
    ]


def readiness_failure(findings: Sequence[ReadinessFinding]) -> SiloFailed | None:
    """The job's end where a finding is an error; it names every fault of every silo."""
    faults: dict[str, list[str]] = {}
    for found in findings:
        if found.severity == "error":
            text = f"{found.code}: {found.place}: {found.value}; {found.remedy}"
            faults.setdefault(found.silo, []).append(text)
    if not faults:
        return None
    told = ". ".join(f"{silo}: {'. '.join(texts)}" for silo, texts in faults.items())
    failure = SiloFailed(f"the data are not ready: {told}")
    failure.reason = DataInvalid.reason
    return failure
