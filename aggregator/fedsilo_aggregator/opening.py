"""From the aggregator's configuration to the job's federation, with whatever its directory held before."""

from __future__ import annotations

from pathlib import Path

from fedsilo.engine.context import JobContext
from fedsilo.engine.federation import Federation
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.store import JobIdentity, JobStore
from fedsilo.errors import ManifestInvalid
from fedsilo.learning.devices import prepare_torch
from fedsilo.learning.models import build_model, signature
from fedsilo.manifests.digest import spec_digest
from fedsilo.methods import registry
from fedsilo.wire import SigningKey
from fedsilo_aggregator.config import AggregatorConfig


def open_federation(config: AggregatorConfig, directory: Path, task_key: Path, data_root: Path) -> Federation:
    """Open the job over its directory.

    :raises ManifestInvalid: when the job has no uid or its method configuration is wrong.
    :raises DataInvalid: when the test set cannot be read.
    :raises WorkdirConflict: when the directory belongs to another job.
    """
    job, spec = config.job, config.job.spec
    if job.metadata.uid is None:
        raise ManifestInvalid(f"job {job.metadata.name}: metadata.uid is missing; the API server sets it")
    prepare_torch(spec.training.threads)
    method = registry.get(spec.method.name)
    silos = tuple(silo.reference for silo in config.silos)
    context = JobContext(
        spec=spec,
        signature=signature(build_model(spec.model, spec.data, seed=0)),
        silos=silos,
        weights=spec.aggregation.weights or method.weights,
    )
    evaluation = None
    if spec.evaluation.test_dataset is not None:
        evaluation = GlobalEvaluation(spec, data_root)
    identity = JobIdentity(job.metadata.uid, job.metadata.name, spec_digest(spec), silos)
    return Federation(JobStore(directory), identity, method, context, SigningKey.load(task_key), evaluation)
