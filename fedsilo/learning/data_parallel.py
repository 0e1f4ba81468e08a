"""Data-parallel training, in which the processes of a silo, one for each of its devices, share every batch.

All of them run the same step of the method on the same examples, and each computes the gradient of its share of a
batch. The sum of these gradients, each counted by its part of the batch, is that of the batch, so every process takes
the same optimiser step. What `torch.nn.parallel.DistributedDataParallel` adds to this, the overlap of the exchange with
the backward pass, demands that a loss calls the wrapped module once; losses of methods call parts of it, or twice.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as PyTorch's default process group has them.

    :param rank: of this process, from 0; what the others compute beside gradients is dropped.
    :param world_size: how many there are; with one, nothing is exchanged.
    """

    rank: int = 0
    world_size: int = 1

    def share(self, n: int, skip_single: bool = False) -> slice:
        """This process's examples of a batch of n; empty where there are fewer than processes.

        :param skip_single: no share may be a single example.
        """
        shares = max(min(self.world_size, n // 2 if skip_single else n), 1)
        if self.rank >= shares:
            return slice(0, 0)
        size, larger = divmod(n, shares)  # as torch.tensor_split: the first ones have one more
        start = self.rank * size + min(self.rank, larger)
        return slice(start, start + size + (self.rank < larger))

    @torch.no_grad()
    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over the processes, the same bits in each of them."""
        for alike in self._by_dtype(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            distributed.all_reduce(flat)
            _spread(flat, alike)

    @torch.no_grad()
    def broadcast_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        for alike in self._by_dtype(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in alike])
            distributed.broadcast(flat, src=0)
            _spread(flat, alike)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace gradients by their sums over the processes; one that no process has stays away."""
        if self.world_size == 1:
            return
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        if not learning:
            return
        there = torch.tensor([float(p.grad is not None) for p in learning], device=learning[0].device)
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.sum_([*(p.grad for p in learning if p.grad is not None), there])
        for parameter, having in zip(learning, there.tolist(), strict=True):
            if not having:
                parameter.grad = None

    def sum_losses(self, losses: Tensor) -> None:
        """Replace losses by their sums over the processes, which may have computed them in different dtypes."""
        if self.world_size > 1:
            total = losses.double()
            self.sum_([total])
            losses.copy_(total)

    @torch.no_grad()
    def average_statistics(self, model: nn.Module) -> None:
        """Replace running statistics, each process's of its shares, by their means; counters by those of rank 0.

        What is the same in all processes, such as frozen statistics, stays as it is to the bit: a mean of the values
        themselves would be rounded.
        """
        if self.world_size == 1:
            return
        buffers = list(model.buffers())
        statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
        first = [buffer.clone() for buffer in statistics]
        self.broadcast_(first)
        differences = [
            torch.where(own == other, torch.zeros_like(own), own - other)  # also of infinities
            for own, other in zip(statistics, first, strict=True)
        ]
        self.sum_(differences)
        for buffer, other, difference in zip(statistics, first, differences, strict=True):
            buffer.copy_(other + difference / self.world_size)
        self.broadcast_(buffer for buffer in buffers if not buffer.is_floating_point())

    def _by_dtype(self, tensors: Iterable[Tensor]) -> Iterable[list[Tensor]]:
        alike = defaultdict[torch.dtype, list[Tensor]](list)
        if self.world_size > 1:
            for tensor in tensors:
                alike[tensor.dtype].append(tensor)
        return alike.values()


SINGLE_PROCESS_GROUP = ProcessGroup()


def _spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


class Rendezvous:
    """Where the processes of a silo find each other for one process group: a store of rank 0, over loopback.

    :param world_size: how many they are.
    :ivar port: of the store.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._store = store = distributed.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        self.port: int = store.port

    def environment(self) -> Mapping[str, str]:
        """What `torchrun` sets in rank 0; in the others the ranks differ."""
        found = {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(self._world_size),
            "LOCAL_WORLD_SIZE": str(self._world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            # The store is there already: no rank is to open one.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        # The name of a machine without a network leads nowhere.
        interfaces = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
        return found | interfaces if sys.platform == "linux" else found


def join(device: torch.device, seconds: float) -> None:
    """Make PyTorch's default process group, of the environment that `torchrun` gives its processes.

    :param seconds: longest wait for another process: NCCL on CUDA, gloo on a CPU.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(seconds=seconds))


def lost_connection(error: BaseException) -> bool:
    """Whether an error, or what it came of, is that another process of the group is gone or does not answer."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, distributed.DistBackendError | distributed.DistNetworkError):
            return True
        if isinstance(cause, RuntimeError) and "gloo" in str(cause):
            return True
        cause = cause.__cause__
    return False


def leave() -> None:
    """End the default process group, unless it was ended already."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
