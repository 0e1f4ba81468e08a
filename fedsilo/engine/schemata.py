"""What the silos have announced of their data's names and types, and whether all of it agrees.

It is compared before a silo begins: one whose names are not those of the job, or of the others, never trains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fedsilo.api.data import DataSpec
from fedsilo.data.comparison import SchemaFault, compare, mismatch_text
from fedsilo.data.schema import Schema
from fedsilo.errors import DataInvalid, FileDamaged, SiloFailed
from fedsilo.files.durable import unlink
from fedsilo.files.json_files import Fields, read_with_digest, write_with_digest

PATIENCE_SECONDS, PATIENCE_SHARE = 30.0, 0.1
"""Longest time for which a silo waits for others that are there and have not announced theirs, in seconds and as a
share of the round's deadline."""

ABSENT_SECONDS, ABSENT_SHARE = 10.0, 0.05
"""Longest time for which a silo waits for others that were not heard from so far, and perhaps never will be, in seconds
and as a share of the round's deadline."""

TEST_SET = "the aggregator's test set"

_FIELDS: Fields = {"schemata": dict, "silos": dict}
_REMEDY = "remove it: silos announce theirs when their guards are started again"


class SchemaStore:
    """The schemata of one job's silos, which outlive a restart.

    :param test_set: schema of the aggregator's test set, if it holds one.
    :raises FileDamaged: when the file is not as it was written.
    """

    def __init__(self, path: Path, data: DataSpec, test_set: Schema | None) -> None:
        self._path = path
        self._data = data
        self._test_set = test_set
        self._schemata = self._read()
        self._faults: dict[str, list[SchemaFault]] = {}
        self._failure: SiloFailed | None = None
        self._compared = False

    @property
    def silos(self) -> Collection[str]:
        """Silos that have announced theirs."""
        return self._schemata.keys()

    @property
    def by_silo(self) -> Mapping[str, Schema]:
        """Silo -> what it has announced."""
        return self._schemata

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, where they are known."""
        if self._data.class_names is not None:
            return self._data.class_names
        return next((found.classes for found in self._schemata.values() if found.classes is not None), None)

    def announce(self, silo: str, schema: Schema) -> None:
        """Take a silo's schema; it outlives a crash from now on."""
        if self._schemata.get(silo) == schema:
            return
        after = self._schemata | {silo: schema}
        different = {found.digest(): found.to_dict() for found in after.values()}
        silos = {name: found.digest() for name, found in after.items()}
        write_with_digest(self._path, {"schemata": different, "silos": silos})
        self._schemata, self._compared = after, False

    def forget(self) -> None:
        """Let all silos announce theirs anew, when the job is resumed."""
        unlink(self._path, missing_ok=True)
        self._schemata, self._compared = {}, False

    def faults(self) -> Mapping[str, Sequence[SchemaFault]]:
        """Owner -> where its schema differs."""
        if not self._compared:
            self._faults = schema_faults(self._data, self._schemata, self._test_set)
            self._failure = mismatch_failure(self._faults) if self._faults else None
            self._compared = True
        return self._faults

    def failure(self) -> SiloFailed | None:
        """The job's end, where they differ; it names all faults of all silos."""
        self.faults()
        return self._failure

    def waits(self, others: Collection[str], heard: Collection[str], deadline: float, waited: float) -> bool:
        """Whether to wait for silos that have not announced theirs.

        :param others: those of the open round.
        :param heard: silos that are there.
        :param deadline: of the round, in seconds.
        :param waited: seconds that one has waited for them.
        """
        if self.failure() is None and not self._depends_on_others():
            return False
        if set(others) & set(heard):
            return waited < min(PATIENCE_SECONDS, PATIENCE_SHARE * deadline)
        return bool(others) and waited < min(ABSENT_SECONDS, ABSENT_SHARE * deadline)

    def _depends_on_others(self) -> bool:
        """Whether only the others can tell that names are wrong: the job itself says none, and there are some."""
        named = any(found.classes or found.columns for found in self._schemata.values())
        return named and self._data.class_names is None

    def _read(self) -> dict[str, Schema]:
        found = read_with_digest(self._path, _REMEDY, _FIELDS) or {"schemata": {}, "silos": {}}
        try:
            schemata = {digest: Schema.from_dict(value) for digest, value in found["schemata"].items()}
            return {silo: schemata[digest] for silo, digest in found["silos"].items()}
        except (DataInvalid, KeyError, TypeError) as error:
            raise FileDamaged(f"{self._path}: is not the file of this name ({error}); {_REMEDY}") from error


def schema_faults(
    data: DataSpec, silos: Mapping[str, Schema], test_set: Schema | None
) -> dict[str, list[SchemaFault]]:
    """The faults of all silos, and of the test set where there is one."""
    owners = {f"silo {silo}": schema for silo, schema in sorted(silos.items())}
    return compare(data, owners | ({} if test_set is None else {TEST_SET: test_set}))


def mismatch_failure(faults: Mapping[str, list[SchemaFault]]) -> SiloFailed:
    """The job's end for these faults."""
    failure = SiloFailed(f"the data are not named alike: {mismatch_text(faults)}")
    failure.reason = DataInvalid.reason
    return failure
