"""Simulating the job of a manifest in this process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fedsilo.api.agent import FrozenJob
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.data.schema import Schema
from fedsilo.engine.context import JobContext
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.engine.readiness import readiness_failure, readiness_table
from fedsilo.engine.schemata import mismatch_failure, schema_faults
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.store import JobIdentity
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import ManifestInvalid
from fedsilo.freed_memory import keep_freed_memory
from fedsilo.learning.devices import pick_device, prepare_torch
from fedsilo.methods import registry
from fedsilo.methods.method import Method
from fedsilo.readiness.finding import ReadinessFinding
from fedsilo.simulation.backend import Backend, SequentialBackend
from fedsilo.simulation.batched import BatchedBackend
from fedsilo.simulation.data import SharedData
from fedsilo.simulation.execution import SEQUENTIAL_PLAN, ExecutionPlan
from fedsilo.simulation.job import HISTORY, Simulation, Writing, write_once
from fedsilo.simulation.silos import SimulatedSilo, open_silos
from fedsilo.simulation.workers import ProcessBackend


def simulate(
    manifest: JobManifest, data_root: Path, directory: Path, execution: ExecutionPlan = SEQUENTIAL_PLAN
) -> Simulation:
    """Run a job to its end in this process, with the job's settings of PyTorch.

    >>> finished = simulate(load_manifest(path), path.parent, Path("runs/first"))  # doctest: +SKIP
    >>> finished.history()[-1]["metrics"]["accuracy"], finished.result.path  # doctest: +SKIP

    :param data_root: directory that relative dataset paths start from.
    :param directory: where `model.safetensors`, `model.json` and `history.jsonl` go.
    :param execution: how the silos' tasks are executed; one after the other in this process by default.
    :raises FedsiloError: the job's failure.
    """
    with closing(open_simulation(manifest, data_root, directory, execution)) as simulation:
        for _ in simulation.run():
            pass
    if simulation.failure is not None:
        raise simulation.failure
    return simulation


def open_simulation(
    manifest: JobManifest,
    data_root: Path,
    directory: Path,
    execution: ExecutionPlan = SEQUENTIAL_PLAN,
    uid: str | None = None,
    writing: Writing = write_once,
) -> Simulation:
    """A job that has not begun, to be closed in the end; arguments as for `simulate`.

    :param uid: the job's identity; a new one by default.
    :param writing: see `Simulation`.
    :raises ManifestInvalid: an execution that the job does not permit.
    :raises DataInvalid: when the test set or the initial weights cannot be read.
    """
    job, spec = manifest.job, manifest.job.spec
    # Workers are forked, which threads of PyTorch's do not survive: until then there is one.
    prepare_torch(1 if execution.workers else spec.training.threads, spec.training.repeatable)
    keep_freed_memory()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / HISTORY).unlink(missing_ok=True)
    method = registry.bind(spec)
    references = tuple(str(silo) for silo in manifest.silos)
    initial = initial_weights(spec, data_root)
    # Loaded once: workers are sent a tree as often as there are objects of it.
    public = PublicDataset.of(method, data_root)
    context = JobContext.of(method, references, initial, public=public)
    if initial is not None:
        context = replace(context, initial=initial.load())
    workflow = Workflow(method, context, GlobalEvaluation.of(spec, data_root))
    name, digest = job.metadata.name, spec_digest(spec)
    identity = JobIdentity(uid or str(uuid.uuid4()), name, digest, references)
    frozen = FrozenJob(
        namespace=job.metadata.namespace, name=name, uid=identity.uid, spec_digest=digest, spec=spec
    )
    silos = open_silos(manifest.silos, frozen, method, SharedData(spec, data_root))
    schemata, findings = _announced_schemata(spec, silos, workflow.test_schema)
    backend = _backend(method, silos, execution)
    simulation = Simulation(workflow, identity, directory, backend, writing, schemata)
    simulation.findings = findings
    return simulation


def _announced_schemata(
    spec: FederatedJobSpec, silos: Mapping[str, SimulatedSilo], test_set: Schema | None
) -> tuple[Mapping[str, Schema], tuple[ReadinessFinding, ...]]:
    """What the silos' data are called and like, looked at before any of them trains, as an aggregator does.

    :returns: schemata by silo, and findings where the job asks for them.
    :raises SiloFailed: naming all faults of all silos.
    """
    announced = {name: silo.schema for name, silo in silos.items() if silo.schema is not None}
    faults = schema_faults(spec.data, announced, test_set)
    findings: tuple[ReadinessFinding, ...] = ()
    if spec.data.check is not None:
        told = {name: silo.findings for name, silo in silos.items()}
        findings = readiness_table(spec.data, told, announced, faults)
        if spec.data.check == "refuse" and (failure := readiness_failure(findings)) is not None:
            raise failure
    if faults:
        raise mismatch_failure(faults)
    return announced, findings


def _backend(method: Method, silos: Mapping[str, SimulatedSilo], execution: ExecutionPlan) -> Backend:
    if execution.workers and execution.batch:
        raise ManifestInvalid("workers and batches of silos exclude each other; leave one of the two out")
    if execution.batch:
        return BatchedBackend(silos, method, execution.batch)
    return _workers(method.spec, silos, execution.workers) if execution.workers else SequentialBackend(silos)


def _workers(spec: FederatedJobSpec, silos: Mapping[str, SimulatedSilo], count: int) -> ProcessBackend:
    if pick_device(spec.training.device).type != "cpu":
        raise ManifestInvalid(
            f"workers: {count}: share the cores of a CPU, and this job trains on a GPU; leave them out, or set "
            "spec.training.device: cpu"
        )
    workers = ProcessBackend(silos, count, spec.training)
    prepare_torch(spec.training.threads, spec.training.repeatable)
    return workers
