"""`fedsilo validate` says everything that is wrong with a manifest, before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.faults import ABSENT_VALUE, Fault, ManifestFaults, first_faults
from fedsilo.api.loading import JobManifest
from fedsilo.api.python_import import origin_of
from fedsilo.api.python_reference import PYTHON
from fedsilo.api.text import comma_separated
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.errors import (
    DataInvalid,
    FedsiloError,
    ImportNotAllowed,
    ManifestInvalid,
    MethodError,
    PolicyRefused,
)
from fedsilo.learning.metrics.chosen import class_scope
from fedsilo.silo.shared_data import shared_data

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
"""Endings of the files that are looked at of a folder, as `kubectl apply -f` does."""

SINGLE_KINDS = (PolicyRefused, MethodError, DataInvalid)
"""What may be wrong with a manifest beside its own faults, each with an exit code, which several files share."""

_MODEL_FIELDS = ("spec.model", "spec.data", "spec.task")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the manifests, and the option for what they may import."""
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        action="extend",
        nargs="+",
        required=True,
        help="manifest with one FederatedJob and its Silos; several, a folder of them, or a pattern such as '*.yaml'",
    )
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print what would run; of what a manifest names nothing is imported but what is allowed.

    :raises ManifestInvalid: with all faults of all files.
    :raises PolicyRefused: when there is nothing else, and so many silos of a manifest would refuse its job that no
        round has a quorum.
    :raises MethodError: or `DataInvalid`, as for one file, when that is what is wrong with each that is not valid.
    """
    errors = [error for named in args.file for error in _look_at(named)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        common = (kind for kind in SINGLE_KINDS if all(isinstance(error, kind) for error in errors))
        raise next(common, ManifestInvalid)("\n".join(map(str, errors)))
    return 0


def _look_at(named: Path) -> Iterator[FedsiloError]:
    """Print what would run of a file, or of each that a folder or a pattern stands for; what is wrong with the others.

    :param named: as the person named it.
    """
    try:
        files = _files_of(named)
    except ManifestFaults as error:
        yield error
        return
    for file in files:
        try:
            print(_report(file))
        except FedsiloError as error:
            yield error


def _files_of(named: Path) -> list[Path]:
    problem = f"holds no manifest ({', '.join(MANIFEST_SUFFIXES)})"
    try:
        if not named.is_dir():
            matches = [] if named.exists() else sorted(named.parent.glob(named.name))
            return matches or [named]
        files = sorted(file for file in named.iterdir() if file.suffix in MANIFEST_SUFFIXES)
    except OSError as error:
        files, problem = [], f"cannot be read ({error.strerror})"
    except ValueError as error:  # of a pattern
        files, problem = [], f"is no file, and no pattern of names ({error})"
    if not files:
        remedy = "name a file, or another folder"
        raise ManifestFaults([Fault(str(named), "", "", ABSENT_VALUE, problem, remedy)])
    return files


def _report(file: Path) -> str:
    """What would run of a manifest.

    :raises ManifestInvalid: with what the file, the registries, the policies and the model's own parts say against it.
    :raises PolicyRefused: where these are the policies alone.
    """
    from fedsilo.local.policy_check import require_permitted
    from fedsilo.validation import checked_manifest

    federation, faults = checked_manifest(file)
    if federation is None:
        raise ManifestFaults(first_faults(faults))
    warnings: list[str] = []
    refused: PolicyRefused | None = None
    with looking_at(file):
        try:
            warnings = require_permitted(federation, datetime.now(UTC))
        except PolicyRefused as error:
            refused = error
        except MethodError:
            if not faults:
                raise
        unasked = _compare_parts(federation, faults)
        if faults:
            lines = [fault.line() for fault in first_faults(faults)]
            raise ManifestInvalid("\n".join([*lines, *([] if refused is None else [str(refused)])]))
        notes = [*unasked, *_declaration_notes(federation), *_other_objects(federation)]
        if refused is not None:
            raise refused
    return "\n".join([summary(federation), *(f"  warning {text}" for text in warnings), *notes])


def _compare_parts(federation: JobManifest, faults: list[Fault]) -> list[str]:
    """Add what is wrong with the division of the model, where its fields have no other fault; a line if it is unknown.

    :param faults: of the manifest, to which it is added.
    """
    from fedsilo.local.parts_check import require_parts_of_the_model

    if any(fault.path.startswith(_MODEL_FIELDS) for fault in faults):
        return []
    try:
        require_parts_of_the_model(federation)
    except ManifestFaults as wrong:
        faults += wrong.faults
    except ImportNotAllowed as refused:
        return [f"  parts   not compared with the model: {refused}"]
    return []


def _other_objects(federation: JobManifest) -> Iterator[str]:
    if federation.others:
        yield f"  others  not fedsilo's, so that only kubectl reads them: {comma_separated(federation.others)}"


def _declaration_notes(federation: JobManifest) -> Iterator[str]:
    """What of a package's own code could not be found out without an import that nobody has allowed, or here."""
    from fedsilo.local.declarations_check import require_declarations

    if (unasked := require_declarations(federation)) is not None:
        yield f"  sends   not derived from the model: {unasked}"


def summary(federation: JobManifest) -> str:
    """The job at a glance: who trains what, for how long, and how many must answer."""
    from fedsilo.transforms.plan import JobPlan

    spec = federation.job.spec
    silos = len(federation.silos)
    sampled = spec.participation.sample_size(silos)
    quorum = spec.participation.quorum(sampled)
    drawn = "all" if sampled == silos else f"{sampled} drawn"
    shape = " x ".join(str(size) for size in spec.data.input_shape)
    rows = {
        "job": str(federation.job),
        "method": spec.method.name,
        "model": f"{spec.model.name} on {spec.data.dataset} ({shape}, {spec.task_summary})",
        "silos": f"{silos}: {comma_separated([silo.metadata.name for silo in federation.silos], 20)}",
        "rounds": f"{spec.training.rounds}, {drawn} silos in each"
        if spec.training.rounds
        else "0: nothing is trained",
        "quorum": f"{quorum} within {spec.participation.round_deadline}",
    }
    if (scope := class_scope(spec)) is not None:
        rows["scores"] = scope
    rows |= JobPlan.of(spec).describe()
    lines = [f"  {name:<8}{value}" for name, value in rows.items()]
    lines += [f"  {'warning':<8}{text}" for text in _warnings(federation)]
    lines += [f"  {'python':<8}{line}" for line in map(_origin_text, _own_code(federation))]
    return "\n".join([f"{federation.file}: valid", *lines])


def _warnings(federation: JobManifest) -> Iterator[str]:
    """What is permitted, and a person should know."""
    root = Path(federation.file).resolve().parent
    for silo in federation.silos:
        yield from (f"silo {silo.metadata.name}: {text}" for text in shared_data(silo, root))


def _own_code(federation: JobManifest) -> list[str]:
    """What the manifest names of one's own, each once."""
    spec = federation.job.spec
    datasets = [
        *spec.aggregator.datasets,
        *(each for silo in federation.silos for each in silo.spec.datasets),
    ]
    names = [
        spec.model.name,
        spec.task.name if spec.task else None,
        spec.training.trainer,
        *(spec.evaluation.metrics or ()),
        *(dataset.loader for dataset in datasets),
    ]
    return list(dict.fromkeys(name for name in names if name is not None and name.startswith(PYTHON)))


def _origin_text(name: str) -> str:
    origin = origin_of(name)
    return (
        f"{name} in {origin}" if origin else f"{name}: not found here; install its package where the job runs"
    )
