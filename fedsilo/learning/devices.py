"""The device of a process, and the settings under which PyTorch computes the same result twice."""

from __future__ import annotations

import logging
import os
import tempfile

import threadpoolctl
import torch

from fedsilo.api.silo import SiloAgentTemplate
from fedsilo.errors import ManifestInvalid
from fedsilo.process import THREAD_VARIABLES

log = logging.getLogger("fedsilo.trainer")


def pick_device(device: str) -> torch.device:
    """The device that `spec.training.device` means on this machine: `auto` is CUDA where there is a GPU.

    :raises ManifestInvalid: `cuda` is asked for and PyTorch sees no GPU.
    """
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ManifestInvalid(
            "spec.training.device: 'cuda': PyTorch finds no GPU here; use auto or cpu, or give it "
            "a GPU and a CUDA build of torch"
        )
    return torch.device("cuda" if available and device != "cpu" else "cpu")


def process_count(device: str, agent: SiloAgentTemplate) -> int:
    """Processes of a silo's training: one for each GPU that its agent asks for; on a CPU what the agent says, or one.

    :param device: `spec.training.device`.
    :raises ManifestInvalid: more processes are asked for than PyTorch finds GPUs.
    """
    asked, gpus = agent.nproc_per_node, agent.gpus
    if pick_device(device).type != "cuda":
        return asked or 1
    found = torch.cuda.device_count()
    if asked is not None and asked > found:
        raise ManifestInvalid(
            f"spec.agent.nprocPerNode: {asked}: PyTorch finds {found} GPUs here; ask for as many GPUs in resources, or "
            "set it to as many as there are"
        )
    if asked is None and gpus > found:
        log.warning(
            "spec.agent.resources: %d GPUs: PyTorch finds %d here, and computes on these", gpus, found
        )
    return asked or min(max(gpus, 1), found)


def use_gpu(device: str, rank: int) -> None:
    """Make `cuda` mean the GPU of this number, where the job computes on GPUs."""
    if pick_device(device).type == "cuda":
        torch.cuda.set_device(rank)


def prepare_torch(threads: int, deterministic: bool = True) -> None:
    """Make results repeatable on one kind of hardware and build; call it before anything is computed.

    The order of floating-point sums depends on the number of threads, on algorithms chosen by timing and on
    the workspace of cuBLAS, so all three are fixed, and TF32, which rounds inputs to 10 bits, is off.

    :param threads: of every numerical library, also one that is loaded later; the environment has no say.
    :param deterministic: otherwise algorithms on a GPU are free, the fastest is found by trying, and TF32 is on.
    """
    # Should a network want PyTorch's compiler, that would name this directory after a user, who may have no name.
    cache = f"{tempfile.gettempdir()}/torchinductor-{os.getuid()}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)
    # cuBLAS reads this when its first handle is made.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)  # the BLAS under NumPy, for what is computed there
    # SciPy and scikit-learn bring libraries of their own, which read these when they are loaded.
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    # What torch.use_deterministic_algorithms does for all but the compiler, which that would import.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cuda.matmul.allow_tf32 = not deterministic
    torch.backends.cudnn.allow_tf32 = not deterministic
