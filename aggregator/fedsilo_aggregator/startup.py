"""Starting an aggregator: hold the job's directory, and open the round engine over it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsilo.api.digest import spec_digest
from fedsilo.durable import is_disk_full, make_directory
from fedsilo.engine.context import JobContext
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.scoring import GlobalEvaluation
from fedsilo.engine.store import JobIdentity, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError, ManifestInvalid, WorkdirConflict
from fedsilo.full_disk import when_there_is_space
from fedsilo.learning.devices import prepare_torch
from fedsilo.locking import DirectoryLock
from fedsilo.methods import registry
from fedsilo.wire import SigningKey
from fedsilo_aggregator.config import AggregatorConfig

PATIENCE_SECONDS = 120.0
"""Time that another process gets to leave the directory. Longer than a pod takes to end after its grace
period, and than an NFS server keeps the locks of a machine that died (90 s)."""

RETRY_SECONDS = 0.25
"""Pause between tries."""


@contextmanager
def claimed(directory: Path, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the directory: two aggregators of one job, as when a pod takes its time to end, must not both write.

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
    prepare_torch(spec.training.threads)
    method = registry.bind(spec)
    silos = tuple(silo.reference for silo in config.silos)
    initial = initial_weights(spec, data_root, directory)
    workflow = Workflow(method, JobContext.of(method, silos, initial), GlobalEvaluation.of(spec, data_root))
    identity = JobIdentity(job.metadata.uid, job.metadata.name, spec_digest(spec), silos)
    key = SigningKey.load(task_key)
    return when_there_is_space(
        lambda: RoundEngine(JobStore(directory), identity, workflow, key, config.keys())
    )
