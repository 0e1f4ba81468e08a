"""Many clients of one LeNet on one device: one by one, in batches, and each in processes of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
import yaml

from benchmarks.gpu.cases import Case, Figures, Setting, SkippedCase
from benchmarks.simulation import Job, documents, measure, run_way

BYTES_OF_A_CLIENT, BYTES_ON_THE_DEVICE = 3 << 29, 3 << 28
"""Memory of a trainer that has opened the device, with its guard: at most 1.5 GiB, most of it CUDA's libraries, and
0.75 GiB on the device."""


def cases(setting: Setting) -> Iterator[Case]:
    """By number of clients; processes last, since they take longest to start."""
    clients = {"full": (10, 50, 100), "quick": (10, 50), "reduced": (2,)}[setting.size]
    for count in clients:
        yield Case(f"{count} clients", partial(in_one_process, setting, count))
    for count in clients:
        yield Case(f"{count} clients, in processes", partial(in_processes, setting, count))


def job_of(setting: Setting, count: int) -> Job:
    """So many clients with ten batches each."""
    rounds = int(setting.of(3, 2, 2))
    images = int(setting.of(320, 320, 32))
    return Job(count, count, rounds, images, batch=min(count, 50), device=setting.device)


def in_one_process(setting: Setting, count: int) -> Figures:
    """Rounds per second one by one and in batches."""
    job = job_of(setting, count)
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as folder:
        alone, batched = (
            rate(measure(way, job, Path(folder) / way)) for way in ("simulation", "simulation, batches")
        )
    return {
        "one by one, rounds/s": alone,
        "batched, rounds/s": batched,
        "batched over one by one": batched / alone,
    }


def in_processes(setting: Setting, count: int) -> Figures:
    """Rounds per second of `fedsilo run`, with a guard and a trainer for each client.

    :raises SkippedCase: they would not fit into the machine's memory.
    """
    if setting.device != "cpu":
        require_memory(count * BYTES_OF_A_CLIENT, available_bytes(), f"{count} trainers")
        require_memory(
            count * BYTES_ON_THE_DEVICE, torch.cuda.mem_get_info()[0], f"{count} trainers on the device"
        )
    job = job_of(setting, count)
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(yaml.safe_dump_all(documents(job)), encoding="utf-8")
        timed = run_way("processes", job, [], Path(folder) / "model.safetensors")
    return {"in processes, rounds/s": timed.rate, "start, s": timed.rounds[0] - timed.began}


def require_memory(needed: int, there: int, what: str) -> None:
    """Return if so many bytes are there.

    :raises SkippedCase: they are not.
    """
    if needed > there:
        raise SkippedCase(
            f"{what} need some {needed / 2**30:.0f} GiB of memory, and {there / 2**30:.0f} GiB are free"
        )


def available_bytes() -> int:
    """Bytes that processes may still take, with what the kernel only caches (proc(5), MemAvailable)."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def rate(times: Sequence[float]) -> float:
    """Rounds per second once they run: the first one counts with the start."""
    return (len(times) - 1) / (times[-1] - times[0])
