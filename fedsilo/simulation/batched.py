"""Training several silos at once: faster where one silo leaves the device idle, equal up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning.batched import require_independent
from fedsilo.learning.models import build_model
from fedsilo.methods.interface import BatchedStep, Reply
from fedsilo.methods.method import Method
from fedsilo.silo.runner import TaskRunner
from fedsilo.simulation.backend import Outcome
from fedsilo.simulation.silos import SimulatedFailure, SimulatedSilo, SimulatedTask


class BatchedBackend:
    """The silos of this process, several at once in the steps that permit it.

    :param size: silos of one batch.
    :raises ManifestInvalid: when no step of the method permits it.
    :raises MethodError: when the network does not.
    """

    def __init__(self, silos: Mapping[str, SimulatedSilo], method: Method, size: int) -> None:
        self._silos = silos
        self._size = size
        if method.spec.training.trainer is not None:
            raise ManifestInvalid(
                f"batches of {size} silos: spec.training.trainer trains one silo at a time; leave them out, or share "
                "the work between worker processes"
            )
        if method.spec.training.precision == "float16":
            raise ManifestInvalid(
                f"batches of {size} silos: spec.training.precision: 'float16': scales the loss of each silo by itself; "
                "use bfloat16, leave the batches out, or share the work between worker processes"
            )
        if not any(isinstance(step, BatchedStep) for step in method.silo().values()):
            raise ManifestInvalid(
                f"batches of {size} silos: method {method.name} trains one silo at a time; leave them out, or share "
                "the work between worker processes"
            )
        if method.spec.model.parameters is not None:
            raise ManifestInvalid(
                f"batches of {size} silos: spec.model.parameters gives each of them tensors of its own; leave the "
                "batches out, or share the work between worker processes"
            )
        require_independent(build_model(method.spec.model, method.spec.data, seed=0))

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task; silos of like size share a batch, so that few wait for others."""
        by_size = sorted(tasks, key=lambda task: -self._silos[task.silo].samples)
        for start in range(0, len(by_size), self._size):
            yield from self._run_batch(by_size[start : start + self._size])

    def close(self) -> None:
        """There is nothing to release."""

    def _run_batch(self, batch: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        runners = [self._silos[task.silo].runner for task in batch]
        able = [runner for runner in runners if not isinstance(runner, SimulatedFailure)]
        step = able[0].batched_step(batch[0].task.step) if able else None
        if step is not None and len(able) == len(batch) > 1:
            try:
                works = [
                    runner.unpack_task(task.task, task.private)
                    for runner, task in zip(able, batch, strict=True)
                ]
                tasks = [runner.method_inputs(work)[0] for runner, work in zip(able, works, strict=True)]
                replies = step.batched_replies([work.context for work in works], tasks)
                replies = list(map(TaskRunner.pack_reply, able, works, replies))
            except FedsiloError:
                pass  # which silo caused it shows when each runs by itself
            except Exception as error:
                raise MethodError(
                    f"batches of {self._size} silos: {type(error).__name__}: {error}; the network cannot be trained "
                    "so; train one silo at a time"
                ) from error
            else:
                for task, reply in zip(batch, replies, strict=True):
                    yield task.silo, self._silos[task.silo].release(task, partial(_computed_reply, reply))
                return
        for task in batch:
            yield task.silo, self._silos[task.silo].answer(task)


def _computed_reply(reply: Reply) -> Reply:
    return reply
