from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import threadpoolctl
import torch

from fedsilo.api.silo import SiloAgentTemplate
from fedsilo.errors import ManifestInvalid
from fedsilo.learning.devices import pick_device, prepare_torch, process_count
from fedsilo.process import THREAD_VARIABLES
from tests.unit.learning.specs import training_spec


@pytest.fixture
def restored_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("CUBLAS_WORKSPACE_CONFIG", *THREAD_VARIABLES):
        monkeypatch.setenv(name, "")
    threads = torch.get_num_threads()
    with threadpoolctl.threadpool_limits(None):
        yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("gpu", "asked", "given"),
    [
        (False, "auto", "cpu"),
        (False, "cpu", "cpu"),
        (True, "auto", "cuda"),
        (True, "cuda", "cuda"),
        (True, "cpu", "cpu"),
    ],
)
def test_pick_device(monkeypatch: pytest.MonkeyPatch, gpu: bool, asked: str, given: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert pick_device(asked) == torch.device(given)


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ManifestInvalid, match=r"spec\.training\.device: 'cuda': .* no GPU here; use auto or cpu"
    ):
        pick_device("cuda")


@pytest.mark.usefixtures("restored_settings")
def test_prepare_torch() -> None:
    prepare_torch(1)
    assert torch.get_num_threads() == 1
    assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}
    assert all(pool["num_threads"] == 1 for pool in threadpoolctl.threadpool_info())
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.usefixtures("restored_settings")
def test_who_wants_speed_gets_tf32_and_free_algorithms() -> None:
    prepare_torch(1, deterministic=False)
    assert not torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.benchmark
    assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    prepare_torch(1)
    assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    assert training_spec().repeatable and not training_spec(deterministic=False).repeatable


@pytest.mark.thorough
def test_libraries_that_are_loaded_later_have_the_threads_of_the_job_too() -> None:
    """SciPy and scikit-learn bring an OpenBLAS and an OpenMP of their own; PyTorch's compiler nobody needs."""
    program = """
import sys, threadpoolctl
from fedsilo.learning.devices import prepare_torch
prepare_torch(1)
import sklearn.cluster
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info()}, "torch._dynamo" in sys.modules)
"""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "2")
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert told.stdout == "{1} False\n"


@pytest.mark.parametrize(
    ("gpus", "nproc_per_node", "found", "processes"),
    [
        (0, None, 4, 1),
        (2, None, 4, 2),
        (4, None, 2, 2),
        (2, 1, 2, 1),
        (0, 3, 4, 3),
        (0, None, 0, 1),
        (0, 2, 0, 2),
    ],
)
def test_a_process_for_each_gpu_that_the_agent_asks_for(
    gpus: int, nproc_per_node: int | None, found: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    limits = {"limits": {"cpu": 8, "nvidia.com/gpu": gpus}} if gpus else {}
    agent = SiloAgentTemplate.model_validate({"resources": limits, "nprocPerNode": nproc_per_node})
    assert process_count("auto", agent) == processes
    assert process_count("cpu", agent) == (nproc_per_node or 1)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ManifestInvalid, match=r"^spec.agent.nprocPerNode: 4: PyTorch finds 2 GPUs here; "):
        process_count("auto", SiloAgentTemplate(nproc_per_node=4))
