"""`fedsilo validate` says everything that is wrong with a manifest, before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.loading import JobManifest
from fedsilo.api.python_import import origin_of
from fedsilo.api.python_reference import PYTHON
from fedsilo.api.text import comma_separated
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.errors import ImportNotAllowed
from fedsilo.silo.shared_data import shared_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the manifest's file, and the option for what it may import."""
    parser.add_argument(
        "-f", "--file", type=Path, required=True, help="manifest with one FederatedJob and its Silos"
    )
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print what would run; of what the manifest names nothing is imported but what is allowed.

    :raises PolicyRefused: when so many silos of the manifest would refuse the job that no round has a quorum.
    """
    from fedsilo.local.policy_check import require_permitted
    from fedsilo.validation import load_manifest

    federation = load_manifest(args.file)
    with looking_at(args.file):
        unknown = list(_unchecked_notes(federation))
        warnings = [f"  warning {text}" for text in require_permitted(federation, datetime.now(UTC))]
    print("\n".join([summary(federation), *warnings, *unknown]))
    return 0


def _unchecked_notes(federation: JobManifest) -> Iterator[str]:
    """What could not be found out without an import that nobody has allowed, or on this machine."""
    from fedsilo.local.declarations_check import require_declarations
    from fedsilo.local.parts_check import require_parts_of_the_model

    try:
        require_parts_of_the_model(federation)
    except ImportNotAllowed as refused:
        yield f"  parts   not compared with the model: {refused}"
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
