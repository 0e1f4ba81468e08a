"""Two processes of a silo share every batch: on one device by gloo, on two by NCCL, with a pod's shared memory.

A trainer with several GPUs has one process for each (`fedsilo.learning.data_parallel`), and NCCL between them. gloo on
one device is what a machine with a single GPU can show of the same code.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from benchmarks.gpu.cases import Case, Figures, Setting, SkippedCase
from benchmarks.gpu.clock import now
from benchmarks.gpu.correctness import distance, length
from benchmarks.training import cross_entropy, examples, job_of
from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP, ProcessGroup, Rendezvous, leave
from fedsilo.learning.devices import prepare_torch
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_module, initial_model, load_tree, to_tree
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.methods.state import Tree

GLOO, NCCL = "gloo", "nccl"
BATCH_EXAMPLES = 64
SHARED_MEMORY = Path("/dev/shm")
POD, CONTAINER = 1 << 30, 64 << 20
"""Bytes of `/dev/shm` as the operator gives it to a trainer with several GPUs, and as a container has it by itself."""

CLONE_NEWNS, MS_PRIVATE, MS_REC = 0x20000, 1 << 18, 1 << 14


def cases(setting: Setting) -> Iterator[Case]:
    """By what the processes speak through, and by the size of shared memory, which NCCL uses and gloo does not."""
    yield Case("two on one device, gloo", partial(rank_figures, setting, GLOO))
    yield Case("two on two devices, NCCL", partial(rank_figures, setting, NCCL))
    for size, name in ((CONTAINER, "64 MiB"), (POD, "1 GiB")):
        yield Case(f"NCCL with /dev/shm of {name}", partial(in_a_pod, setting, size))


def in_a_pod(setting: Setting, size: int) -> Figures:
    """Two processes on two devices, to which `/dev/shm` is what a pod has; the reduced form only mounts it.

    :raises SkippedCase: there are too few devices, or this user may mount nothing.
    """
    through = GLOO if setting.size == "reduced" else NCCL
    require_devices(through)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pod:
        return pod.submit(small_memory_figures, setting, through, size).result(180)


def small_memory_figures(setting: Setting, through: str, size: int) -> Figures:
    """The figures of two processes, to which `/dev/shm` is a file system of this size.

    :raises SkippedCase: this user may mount nothing.
    """
    mount_shared_memory(size)
    if setting.size == "reduced":
        return {"MiB": os.statvfs(SHARED_MEMORY).f_blocks * os.statvfs(SHARED_MEMORY).f_frsize >> 20}
    return rank_figures(setting, through)


def rank_figures(setting: Setting, through: str) -> Figures:
    """Milliseconds of a step by one process and by two, and how far apart their weights are.

    :raises SkippedCase: there are too few devices.
    :raises AssertionError: the processes end with different bytes.
    """
    require_devices(through)
    steps = int(setting.of(50, 20, 2))
    alone, before = train_lenet(setting.device, SINGLE_PROCESS_GROUP, steps)
    meeting = Rendezvous(2)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as ranks:
        asked = (setting.device, through, meeting.port, steps)
        found = [ranks.submit(as_rank, rank, *asked) for rank in range(2)]
        (one, seconds), (other, _) = (future.result(120) for future in found)
    assert all(one[name].tobytes() == other[name].tobytes() for name in one), "two processes, two models"
    return {
        "steps": steps,
        "one process, ms/step": 1000 * before / steps,
        "two processes, ms/step": 1000 * seconds / steps,
        "from one process": distance(one, alone) / length(alone),
    }


def require_devices(through: str) -> None:
    """Return if there are as many devices as two processes need.

    :raises SkippedCase: there are fewer.
    """
    if through == NCCL and (found := torch.cuda.device_count()) < 2:
        raise SkippedCase(f"NCCL takes a device for each process, and there are {found}")


def as_rank(rank: int, device: str, through: str, port: int, steps: int) -> tuple[Tree, float]:
    """Weights and seconds of one of two processes, which meet at the port."""
    prepare_torch(1)
    if through == NCCL:
        torch.cuda.set_device(rank)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    store = distributed.TCPStore("127.0.0.1", port, is_master=False)  # type: ignore[attr-defined]
    distributed.init_process_group(
        through, store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    try:
        return train_lenet(device, ProcessGroup(rank, 2), steps)
    finally:
        leave()


def train_lenet(device: str, group: ProcessGroup, steps: int) -> tuple[Tree, float]:
    """Weights of a LeNet after so many steps, and the seconds that these took after three that warm up."""
    spec = job_of("lenet", device, "float32", BATCH_EXAMPLES)
    tree = initial_model(spec)
    features, labels = examples(steps * BATCH_EXAMPLES, "images")
    plan = LocalTraining(lr=0.001, batch_size=BATCH_EXAMPLES, momentum=0.9, group=group)
    for some in (min(steps, 3), steps):
        model = build_module(spec.model, spec.data, 0, spec.task)
        load_tree(model, tree)
        model.to(device)
        data = Examples.from_arrays(
            features[: some * BATCH_EXAMPLES], labels[: some * BATCH_EXAMPLES], device
        )
        began = now(device)
        fit(model, data, plan, loss=lambda network, x, y: cross_entropy(network(x), y))
        seconds = now(device) - began
    return {name: np.array(array) for name, array in to_tree(model).items()}, seconds


def mount_shared_memory(size: int) -> None:
    """Give this process a `/dev/shm` of its own, as a pod has one.

    :raises SkippedCase: this user may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = (
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
        and libc.mount(b"shm", bytes(SHARED_MEMORY), b"tmpfs", 0, f"size={size}".encode()) == 0
    )
    if not mounted:
        raise SkippedCase(
            f"{SHARED_MEMORY} cannot be mounted here: {os.strerror(ctypes.get_errno())}; root may"
        )
