"""Whether the data of a manifest's silos fit its job, where one machine holds them all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.data.arrays import Arrays
from fedsilo.data.comparison import compare
from fedsilo.data.loaders import load
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.data.schema import Schema, feature_names
from fedsilo.engine.public_dataset import reads_labels
from fedsilo.engine.readiness import differences
from fedsilo.errors import DataInvalid
from fedsilo.local.policy_check import leaves_no_quorum, refusals
from fedsilo.methods import registry
from fedsilo.readiness.examine import absent_classes, examine, split_text
from fedsilo.readiness.facts import Facts
from fedsilo.readiness.finding import ReadinessFinding, Severity, ordered_findings
from fedsilo.readiness.units import Magnitudes, unit_differences
from fedsilo.silo.examples import dataset_of, split, trains_model
from fedsilo.silo.readiness import silo_data
from fedsilo.tasks.registry import bind
from fedsilo.validation import as_manifest

AGGREGATOR = "aggregator"


def check(manifest: JobManifest | Path | str) -> list[ReadinessFinding]:
    """Everything that is worth knowing about the data of all silos, and of what the aggregator holds.

    :param manifest: relative paths start from its directory.
    :returns: the gravest findings first; the job can run where none is an error.
    :raises ManifestInvalid: when the manifest cannot be used.
    """
    federation = as_manifest(manifest)
    found = _Check(federation.job.spec, Path(federation.file).resolve().parent).run(federation.silos)
    return ordered_findings([*_policy_findings(federation), *found])


def _policy_findings(federation: JobManifest) -> Iterator[ReadinessFinding]:
    """What the silos' own policies say against the job: an error where too few silos are left for a round."""
    refused = refusals(federation, datetime.now(UTC))
    severity: Severity = "error" if leaves_no_quorum(federation, refused) else "warning"
    for silo, objections in refused.items():
        for text in objections:
            place, _, rest = text.partition(" ")
            value, _, remedy = rest.partition("; ")
            yield ReadinessFinding("PolicyRefuses", severity, silo, place, value, remedy)


class _Check:
    """The data of one job, dataset by dataset: only what is announced of one outlives the next."""

    def __init__(self, spec: FederatedJobSpec, root: Path) -> None:
        self._spec = spec
        self._root = root
        self._schemata: dict[str, Schema] = {}
        self._labels: list[np.ndarray] = []
        self._magnitudes: dict[str, Magnitudes] = {}

    def run(self, silos: tuple[Silo, ...]) -> list[ReadinessFinding]:
        found = [finding for silo in silos for finding in self._silo(silo)]
        spec = self._spec
        for dataset in spec.aggregator.datasets:
            if dataset.name == spec.evaluation.test_dataset:
                found += self._test_set_findings(dataset)
            if dataset.name == spec.aggregation.public_dataset:
                found += self._public_dataset_findings(dataset)
        found += [*self._differences(), *self._unit_differences()]
        if len(self._labels) == len(silos) and bind(spec.task, spec.data).single_label:
            found += absent_classes(spec, self._labels)
        return found

    def _silo(self, silo: Silo) -> Iterator[ReadinessFinding]:
        name, spec = silo.metadata.name, self._spec
        arrays, faults = self._load_dataset(name, dataset_of(spec, silo))
        yield from faults
        if arrays is None:
            return
        strata = bind(spec.task, spec.data).strata(arrays.labels)
        try:
            train, validation = split(spec, silo, strata, arrays.persons)
        except DataInvalid as error:
            yield from self._unreadable_findings(name, error)
            return
        data = silo_data(spec, silo, arrays, train, validation)
        self._labels.append(arrays.labels)
        try:
            facts = Facts.of(spec, data)
            if data.tells_features:
                self._magnitudes[name] = facts.magnitudes(data.min_values_per_feature)
            yield from examine(spec, data, facts)
        except DataInvalid as error:  # of features that stay in their files until they are looked at
            yield from self._unreadable_findings(name, error)

    def _load_dataset(self, owner: str, dataset: DatasetSpec) -> tuple[Arrays | None, list[ReadinessFinding]]:
        """What a dataset holds, or why that is not known."""
        try:
            exact, task = not trains_model(self._spec), self._spec.task
            arrays = load(dataset, self._spec.data, root=self._root, task=task, exact=exact)
        except SchemaMismatch as mismatch:
            self._schemata[owner] = mismatch.schema
            return None, []  # the comparison names each difference
        except DataInvalid as error:
            return None, list(self._unreadable_findings(owner, error))
        self._schemata[owner] = arrays.schema
        return arrays, []

    def _test_set_findings(self, dataset: DatasetSpec) -> Iterator[ReadinessFinding]:
        arrays, faults = self._load_dataset(AGGREGATOR, dataset)
        yield from faults
        try:
            if arrays is not None:
                arrays.require_readable()
        except DataInvalid as error:
            yield from self._unreadable_findings(AGGREGATOR, error)

    def _public_dataset_findings(self, dataset: DatasetSpec) -> Iterator[ReadinessFinding]:
        """Why the aggregator could not learn from its public dataset; its schema is not compared with the silos'."""
        method = registry.bind(self._spec)
        try:
            labelled = reads_labels(method)
            arrays = load(dataset, self._spec.data, root=self._root, task=self._spec.task, labelled=labelled)
            arrays.require_readable()
        except DataInvalid as error:
            yield from self._unreadable_findings(AGGREGATOR, error)

    def _unreadable_findings(self, owner: str, error: DataInvalid) -> Iterator[ReadinessFinding]:
        for fault in error.faults:
            yield ReadinessFinding("Unreadable", "error", owner, *split_text(str(fault)))

    def _differences(self) -> Iterator[ReadinessFinding]:
        yield from differences(compare(self._spec.data, self._schemata))

    def _unit_differences(self) -> Iterator[ReadinessFinding]:
        known = next((self._schemata[silo] for silo in self._magnitudes), Schema())
        return unit_differences(self._magnitudes, feature_names(known, self._spec.data.input_shape[0]))
