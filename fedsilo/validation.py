"""What only the registries know: whether method, model and loaders exist and accept their settings.

Still free of torch, so that the command line, the operator and an admission check can all ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.contradictions import PUBLIC_DATASET, TEST_EXAMPLES
from fedsilo.api.documents import IN_MEMORY_FILE_NAME, Document, DocumentList, documents_of, read_documents
from fedsilo.api.faults import ABSENT_VALUE, first_faults
from fedsilo.api.loading import Fault, JobManifest, ManifestFaults, ParsedManifest, parse_manifest
from fedsilo.api.partial import further_faults
from fedsilo.api.text import comma_separated, count_text
from fedsilo.data.catalogue import check_dataset, listed_features
from fedsilo.data.same_examples import share_examples
from fedsilo.errors import FedsiloError, ImportNotAllowed, MethodError
from fedsilo.learning.catalogue import check_model
from fedsilo.learning.metrics.chosen import check_metrics
from fedsilo.methods import registry
from fedsilo.methods.checks import check_validation
from fedsilo.methods.method import declaring
from fedsilo.silo.silo_check import silo_findings
from fedsilo.tasks.interface import OWN_TASK_NAME
from fedsilo.tasks.registry import bind, check_task, kind_of
from fedsilo.tasks.segmentation import SegmentationTask
from fedsilo.transforms.conflicts import check_job
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party.registry import bind_one

Source = Path | str | Sequence[Mapping[str, Any]]
"""A file, or the documents of one as mappings."""


def load_manifest(path: Source, allow_imports: Collection[str] = ()) -> JobManifest:
    """Read a manifest and check all of it; nothing that it names is imported, except what is allowed.

    :param path: a file, or its documents as mappings; relative paths of these start from the present directory.
    :param allow_imports: modules, or `module:attribute`, of somebody else's method that the manifest may name.
    :raises ImportNotAllowed: when the job's method is in a package that is not among them.
    :raises ManifestFaults: with all faults at once, those of the file and those that the registries see.
    """
    federation, faults = checked_manifest(path, allow_imports)
    if faults or federation is None:
        raise ManifestFaults(first_faults(faults))
    return federation


def validate(path: Source, allow_imports: Collection[str] = ()) -> list[Fault]:
    """Everything that is wrong with a manifest; nothing when it can run. Parameters and errors as `load_manifest`."""
    return first_faults(checked_manifest(path, allow_imports)[1])


def checked_manifest(
    path: Source, allow_imports: Collection[str] = ()
) -> tuple[JobManifest | None, list[Fault]]:
    """The federation as far as a manifest can be understood, and all that is wrong with it; parameters and errors as
    `load_manifest`.
    """
    with looking_at(_name(path), allow_imports):
        return _with_registries(_parse_source(path))


def as_manifest(manifest: JobManifest | Source) -> JobManifest:
    """A manifest that was loaded already, or is loaded now; errors as `load_manifest`."""
    return manifest if isinstance(manifest, JobManifest) else load_manifest(manifest)


def varied_manifest(manifest: JobManifest, documents: Sequence[Document]) -> JobManifest:
    """The manifest that a file with these documents would be, checked as `load_manifest` does.

    :raises ManifestFaults: with all faults at once.
    """
    federation, faults = _with_registries(parse_manifest(manifest.file, DocumentList(tuple(documents), ())))
    if faults or federation is None:
        raise ManifestFaults(first_faults(faults))
    return federation


def registry_faults(federation: JobManifest) -> list[Fault]:
    """Faults of method, learning task, model, metrics and datasets; none when the federation can run."""
    return [
        *_method_faults(federation),
        *_task_faults(federation),
        *_model_faults(federation),
        *_metric_faults(federation),
        *_dataset_faults(federation),
    ]


def _name(source: Source) -> Path | str:
    return source if isinstance(source, Path | str) else IN_MEMORY_FILE_NAME


def _parse_source(source: Source) -> ParsedManifest:
    if isinstance(source, Path | str):
        return parse_manifest(str(source), read_documents(Path(source)))
    return parse_manifest(IN_MEMORY_FILE_NAME, documents_of(source))


def _with_registries(parsed: ParsedManifest) -> tuple[JobManifest | None, list[Fault]]:
    """The federation, and its faults with those that the registries see."""
    faults = list(parsed.faults)
    if parsed.federation is not None:
        found = registry_faults(parsed.federation)
    else:
        found = _distinct_faults(
            document.fault(*finding) for document, silo in parsed.silos for finding in silo_findings(silo)
        )
    return parsed.federation, [*parsed.all_faults, *further_faults(faults, found)]


def _method_faults(federation: JobManifest) -> Iterator[Fault]:
    job = federation.job
    try:
        method = registry.bind(job.spec)
    except ManifestFaults as error:
        # `document` and `file` come from the federation, so that both kinds of faults look alike.
        yield from (federation.fault(job, f.path, f.value, f.problem, f.remedy) for f in error.faults)
        return
    except ImportNotAllowed:
        raise
    except FedsiloError as error:
        remedy = "reinstall or remove the package that offers it"
        problem = f"cannot be used ({error})"
        yield federation.fault(job, "spec.method.name", job.spec.method.name, problem, remedy)
        return
    faults = list(_transform_faults(federation))
    yield from faults
    if faults:  # those of everything else follow without them
        method = registry.bind(job.spec.model_copy(update={"transforms": None}))
    try:
        with declaring(method):
            found = [*check_job(method), *check_validation(method), *method.check()]
            plan = JobPlan(method)
            _ = plan.exchanges, plan.steps
    except MethodError as error:
        remedy = "mend or remove the package that offers it"
        yield federation.fault(
            job, "spec.method.name", job.spec.method.name, f"cannot be used: {error}", remedy
        )
        return
    for fault in found:
        yield federation.fault(job, *fault)


def _transform_faults(federation: JobManifest) -> Iterator[Fault]:
    """Transforms that are not installed, cannot be used or do not take their settings."""
    job = federation.job
    for place, asked in enumerate(job.spec.transforms or ()):
        try:
            bind_one(place, asked)
        except ManifestFaults as error:
            yield from (federation.fault(job, f.path, f.value, f.problem, f.remedy) for f in error.faults)
        except ImportNotAllowed:
            raise
        except FedsiloError as error:
            path, remedy = f"spec.transforms[{place}].name", "reinstall or remove the package that offers it"
            yield federation.fault(job, path, asked.name, f"cannot be used ({error})", remedy)


def _task_faults(federation: JobManifest) -> Iterator[Fault]:
    job, spec = federation.job, federation.job.spec
    faults = check_task(spec.task, spec.data)
    for fault in faults:
        yield federation.fault(job, *fault)
    if kind_of(spec.task) == SegmentationTask.name and spec.training.augmentation is not None:
        problem, remedy = "would change images and leave their masks", "remove it"
        yield federation.fault(job, "spec.training.augmentation", ABSENT_VALUE, problem, remedy)
    if faults or kind_of(spec.task) == OWN_TASK_NAME or bind(spec.task, spec.data).single_label:
        return
    for silo in federation.silos:
        for position, dataset in enumerate(silo.spec.datasets):
            if (
                dataset.name != spec.data.dataset
                or dataset.partition is None
                or dataset.partition.scheme == "iid"
            ):
                continue
            problem = (
                f"divides examples by their class, and an example of {kind_of(spec.task)} has no single one"
            )
            where = f"spec.datasets[{position}].partition.scheme"
            yield federation.fault(silo, where, dataset.partition.scheme, problem, "use iid")


def _model_faults(federation: JobManifest) -> Iterator[Fault]:
    spec = federation.job.spec
    for fault in check_model(spec.model, spec.data, spec.task):
        yield federation.fault(federation.job, *fault)


def _metric_faults(federation: JobManifest) -> Iterator[Fault]:
    for fault in check_metrics(federation.job.spec):
        yield federation.fault(federation.job, *fault)


def _dataset_faults(federation: JobManifest) -> Iterator[Fault]:
    job = federation.job
    for position, dataset in enumerate(job.spec.aggregator.datasets):
        for path, value, problem, remedy in check_dataset(dataset):
            where = f"spec.aggregator.datasets[{position}].{path}"
            yield federation.fault(job, where, value, problem, remedy)
    yield from _public_faults(federation)
    yield from _feature_faults(federation)
    silos = (federation.fault(silo, *finding) for silo in federation.silos for finding in silo_findings(silo))
    yield from _distinct_faults(silos)


def _distinct_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Leave out repeated faults: Silos of one template have those that it has."""
    return list({fault.line(): fault for fault in faults}.values())


def _feature_faults(federation: JobManifest) -> Iterator[Fault]:
    """Tables whose settings list other features than the job has, as far as no file need be read for that."""
    spec = federation.job.spec
    found = [(f"silo {silo.metadata.name}", silo.dataset(spec.data.dataset)) for silo in federation.silos]
    held = [(owner, dataset) for owner, dataset in found if dataset is not None]
    held += [("the aggregator", dataset) for dataset in spec.aggregator.datasets]
    owners: dict[int, list[str]] = {}
    for owner, dataset in held:
        count = listed_features(dataset)
        if count is not None and spec.data.input_shape != (count,):
            owners.setdefault(count, []).append(f"dataset {dataset.name} of {owner}")
    for count, names in owners.items():
        listed = f"is not the {count_text(count, 'feature')} that columns and categories list"
        problem = f"{listed} in {comma_separated(names)}"
        remedy = f"write [{count}], or correct config.columns or config.categories there"
        shape = list(spec.data.input_shape)
        yield federation.fault(federation.job, "spec.data.inputShape", shape, problem, remedy)


def _public_faults(federation: JobManifest) -> Iterator[Fault]:
    """Public examples that are those of the test set under another name; of the same name is a contradiction."""
    spec = federation.job.spec
    held = {dataset.name: dataset for dataset in spec.aggregator.datasets}
    test, public = spec.evaluation.test_dataset, spec.aggregation.public_dataset
    if test == public or test not in held or public not in held:
        return
    # Relative paths start where the file lies; on a cluster, where there is no file, all from the same place.
    if share_examples(held[test], held[public], root=Path(federation.file).resolve().parent):
        remedy = "name other examples; of one source, two parts of one iid partition have none in common"
        yield federation.fault(federation.job, PUBLIC_DATASET, public, TEST_EXAMPLES, remedy)
