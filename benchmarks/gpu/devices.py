"""The devices of this machine, as PyTorch sees them, and which one a run measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

CPU = "cpu"
CUDA = "cuda"

_ASK = """
import json, torch
found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
print(json.dumps([[one.name, one.total_memory, torch.version.cuda] for one in found]))
"""


class NoSuchDevice(Exception):
    """The machine has no device of the name that a person gave; the text names those that it has."""


@dataclass(frozen=True)
class Device:
    """What a run measures.

    :param kind: `cuda` or `cpu`, as `spec.training.device` has it.
    :param number: of a GPU, from 0; 0 for the CPU.
    :param memory: bytes; of the CPU 0.
    :param cuda: version that PyTorch was built with; of the CPU empty.
    """

    kind: str
    number: int
    name: str
    memory: int = 0
    cuda: str = ""

    @override
    def __str__(self) -> str:
        gigabytes = f", {self.memory / 2**30:.0f} GiB" if self.memory else ""
        return f"{self.name}{gigabytes}"


def gpus() -> list[Device]:
    """The GPUs that PyTorch finds; a process of its own asks, so that this one holds none of their memory.

    :raises NoSuchDevice: PyTorch cannot be asked.
    """
    told = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True)
    if told.returncode != 0:
        raise NoSuchDevice(f"PyTorch cannot be asked for GPUs: {''.join(told.stderr.splitlines()[-1:])}")
    found = json.loads(told.stdout)
    return [Device(CUDA, number, *one) for number, one in enumerate(found)]


def driver() -> str:
    """Version of NVIDIA's driver; empty where its tool does not say."""
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        told = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip().splitlines()[0] if told.returncode == 0 and told.stdout.strip() else ""


def choose(found: Sequence[Device], asked: str | None, cpu: Device) -> Device:
    """The device that a run measures.

    :param found: GPUs.
    :param asked: `cpu`, `cuda`, `cuda:1`; None takes the first GPU, or the CPU where there is none.
    :raises NoSuchDevice: it is none of these.
    """
    if asked == CPU or (asked is None and not found):
        return cpu
    names = {f"{CUDA}:{device.number}": device for device in found}
    chosen = names.get(f"{CUDA}:0" if asked in (None, CUDA) else str(asked))
    if chosen is None:
        there = ", ".join(f"{name} ({device})" for name, device in names.items())
        raise NoSuchDevice(
            f"--device: {asked!r}: PyTorch finds {there or 'no GPU'} here; name "
            f"{'one of these' if found else 'cpu, which runs the reduced form'}"
        )
    return chosen


def environment(device: Device, found: Sequence[Device]) -> dict[str, str]:
    """The environment of a process whose `cuda:0` is the chosen GPU, or that sees none where the CPU was chosen."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    known = visible.split(",") if visible else [str(one.number) for one in found]
    order = (
        [] if device.kind == CPU else [device.number, *(n for n in range(len(found)) if n != device.number)]
    )
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(known[number] for number in order)}
