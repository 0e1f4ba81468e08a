"""Starting an aggregator means to hold the job's directory, and to open the round engine over it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.context import JobContext
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.store import JobIdentity, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError, ManifestInvalid, WorkdirConflict
from fedsilo.files.durable import is_disk_full, make_directory, unlink
from fedsilo.files.full_disk import when_there_is_space
from fedsilo.files.locking import DirectoryLock
from fedsilo.learning.built import built_apart
from fedsilo.learning.lazy_torch import is_torch_imported, prepare_numerics
from fedsilo.methods import registry
from fedsilo.methods.method import Method
from fedsilo.methods.state import StoredTree
from fedsilo.transforms.transform import Signers
from fedsilo.wire import SigningKey
from fedsilo_aggregator.config import AggregatorConfig

if TYPE_CHECKING:
    from fedsilo.engine.scoring import GlobalEvaluation

DRAWN_WEIGHTS = "drawn-weights"
"""File in the job's directory, while a job begins; what a crash leaves of it is replaced or removed."""

PATIENCE_SECONDS = 120.0
"""Time that another process gets to leave the directory. Longer than a pod takes to end after its grace
period, and than an NFS server keeps the locks of a machine that died (90 s)."""

RETRY_SECONDS = 0.25
"""Pause between two tries to hold the directory."""


@contextmanager
def hold_directory(directory: Path, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the job's directory as the only process.

    Two aggregators of one job, as when a pod takes its time to end, must not both write.

    :param patience: seconds to wait for another process that holds it.
    :raises WorkdirConflict: naming the process that held it all the time.
    """
    until = time.monotonic() + patience
    with when_there_is_space(lambda: _lock_in(directory)) as lock:
        while not lock.acquire():
            if time.monotonic() >= until:
                raise WorkdirConflict(
                    f"{directory}: {lock.holder or 'another process'} has been using it for {patience:g} s; end that "
                    "process, or name another directory"
                )
            time.sleep(RETRY_SECONDS)
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        when_there_is_space(lambda: lock.write_holder(holder))
        yield


def _lock_in(directory: Path) -> DirectoryLock:
    try:
        make_directory(directory)
        return DirectoryLock(directory)
    except OSError as error:
        if is_disk_full(error):
            raise
        raise FedsiloError(
            f"{directory}: cannot be written ({error.strerror}); give user {os.geteuid()} or group {os.getegid()} the "
            "right to"
        ) from error


def open_engine(config: AggregatorConfig, directory: Path, task_key: Path, data_root: Path) -> RoundEngine:
    """Open the job's round engine over its directory, new or as an earlier process left it.

    :raises ManifestInvalid: when the job has no uid or its method configuration is wrong.
    :raises DataInvalid: when the test set or the initial weights cannot be read.
    :raises WorkdirConflict: when the directory belongs to another job.
    :raises FileDamaged: when one of its files is not as it was written.
    """
    job, spec = config.job, config.job.spec
    if job.metadata.uid is None:
        raise ManifestInvalid(f"job {job.metadata.name}: metadata.uid is missing; the API server sets it")
    prepare_numerics(spec.training.threads)
    method = registry.bind(spec)
    method.server()  # its import tells whether the method needs torch here
    evaluation = _evaluation(spec, data_root)
    silos = tuple(silo.reference for silo in config.silos)
    initial = initial_weights(spec, data_root, directory)
    drawn = directory / DRAWN_WEIGHTS
    public = PublicDataset.of(method, data_root)
    context = when_there_is_space(lambda: _context(method, silos, initial, drawn, public))
    workflow = Workflow(method, context, evaluation, Signers(job.metadata.uid, config.keys()))
    identity = JobIdentity(job.metadata.uid, job.metadata.name, spec_digest(spec), silos)
    key = SigningKey.load(task_key)
    engine = when_there_is_space(
        lambda: RoundEngine(JobStore(directory), identity, workflow, key, config.keys())
    )
    unlink(drawn, missing_ok=True)
    return engine


def _evaluation(spec: FederatedJobSpec, data_root: Path) -> GlobalEvaluation | None:
    """The test set, where the aggregator holds one."""
    if spec.evaluation.test_dataset is None:
        return None
    from fedsilo.engine.scoring import GlobalEvaluation

    return GlobalEvaluation(spec, data_root)


def _context(
    method: Method,
    silos: tuple[str, ...],
    initial: StoredTree | None,
    drawn: Path,
    public: PublicDataset | None,
) -> JobContext:
    """The job for the server half; a process that has not imported torch so far need not do so for that.

    :param drawn: where initial weights may lie until the job's first state is stored.
    :raises OSError: when there is no space for them.
    """
    if is_torch_imported():
        return JobContext.of(method, silos, initial, public=public)
    begins = initial is None and not (drawn.parent / "state.json").exists()
    built = built_apart(method.spec, drawn if begins else None)
    return JobContext.of(method, silos, initial, built, drawn, public)
