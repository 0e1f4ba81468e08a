"""Memory that a step frees is there for the next one, and goes back to the system when it is released."""

from __future__ import annotations

import ctypes
import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from fedsilo.freed_memory import keep_freed_memory, release_free_memory

STEPS = 20
TENSOR_BYTES = 600_000
PAGES = 4 * TENSOR_BYTES // 4096
"""Pages of the results of one step."""

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")


def step() -> None:
    """Results of four layers, written and freed."""
    layers = [np.ones(TENSOR_BYTES // 8) for _ in range(4)]
    del layers


def faults_per_step() -> float:
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(STEPS):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / STEPS


def kept_faults() -> float:
    keep_freed_memory()
    return faults_per_step()


def released_pages() -> float:
    """Pages of what a step has freed that the system gets back."""
    keep_freed_memory()
    step()
    before = resident_pages()
    release_free_memory()
    return before - resident_pages()


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def in_a_child(measured: Callable[[], float]) -> float:
    """What is measured in a process of its own: settings of the C library last as long as one."""
    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe()

    def run(answer: Connection) -> None:
        answer.send(measured())

    child = forking.Process(target=run, args=(theirs,))
    child.start()
    found: float = ours.recv()
    child.join()
    return found


@glibc
def test_a_step_finds_the_memory_that_the_last_one_freed() -> None:
    assert in_a_child(kept_faults) < PAGES / 10


@glibc
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what is resident")
def test_released_memory_goes_back_to_the_system() -> None:
    assert in_a_child(released_pages) > 0.9 * PAGES
