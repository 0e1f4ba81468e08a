"""Several silos' training at once, batched: sooner where one silo leaves the device idle, equal up to rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning.batched import require_independent
from fedsilo.learning.models import build_model
from fedsilo.methods import registry
from fedsilo.methods.interface import BatchedStep, Reply
from fedsilo.simulation.silos import Failure, SimulatedSilo, SimulatedTask, SimulatedUpdate


class Batches:
    """The silos of this process, so many at once in the steps that permit it.

    :param size: silos of one batch.
    :raises ManifestInvalid: when no step of the method permits it.
    :raises MethodError: when the network does not.
    """

    def __init__(self, silos: Mapping[str, SimulatedSilo], spec: FederatedJobSpec, size: int) -> None:
        self._silos = silos
        self._size = size
        method = registry.get(spec.method.name)
        steps = method.silo(registry.config_of(method, spec))
        if not any(isinstance(step, BatchedStep) for step in steps.values()):
            raise ManifestInvalid(
                f"batches of {size} silos: method {method.name} trains one silo at a time; leave them out, or share "
                "the work between worker processes"
            )
        require_independent(build_model(spec.model, spec.data, seed=0))

    def answers(self, questions: Sequence[SimulatedTask]) -> Iterator[tuple[str, SimulatedUpdate | Failure]]:
        """Silo and answer; silos of like size come together, so that few wait for others of their batch."""
        by_size = sorted(questions, key=lambda question: -self._silos[question.silo].samples)
        for start in range(0, len(by_size), self._size):
            yield from self._answers(by_size[start : start + self._size])

    def close(self) -> None:
        """Nothing to end."""

    def _answers(self, batch: Sequence[SimulatedTask]) -> Iterator[tuple[str, SimulatedUpdate | Failure]]:
        runners = [self._silos[question.silo].runner for question in batch]
        able = [runner for runner in runners if not isinstance(runner, Failure)]
        step = able[0].batched_step(batch[0].task.step) if able else None
        if step is not None and len(able) == len(batch) > 1:
            try:
                contexts = [runner.context for runner in able]
                replies = step.together(contexts, [question.task for question in batch])
            except FedsiloError:
                pass  # whose fault it is shows when each is asked by itself
            except Exception as error:
                raise MethodError(
                    f"batches of {self._size} silos: {type(error).__name__}: {error}; the network cannot be trained "
                    "so; train one silo at a time"
                ) from error
            else:
                for question, reply in zip(batch, replies, strict=True):
                    yield question.silo, self._silos[question.silo].let_go(question, partial(_given, reply))
                return
        for question in batch:
            yield question.silo, self._silos[question.silo].answer(question)


def _given(reply: Reply) -> Reply:
    return reply
