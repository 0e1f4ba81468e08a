from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import threadpoolctl
import torch

from fedsilo.errors import ManifestInvalid
from fedsilo.learning.devices import pick_device, prepare_torch


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
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


@pytest.mark.usefixtures("restored")
def test_prepare_torch() -> None:
    prepare_torch(1)
    assert torch.get_num_threads() == 1
    assert all(pool["num_threads"] == 1 for pool in threadpoolctl.threadpool_info())
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
