"""The silo half of a method of somebody else's, tried on made-up examples before a job has it run in a silo.

Every step runs in its first rounds, and gets its private state as a trainer gives it: from the files in which it was
kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsilo.api.python_import import error_summary, place_of
from fedsilo.errors import DataInvalid, FedsiloError, MethodError
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.method import Method
from fedsilo.silo.private_state import PrivateStateStore
from fedsilo.silo.runner import TaskRunner
from fedsilo.tasks.registry import bind

EXAMPLES = 64
"""Examples that are made up, of all classes in turn."""


class MadeUpSilo:
    """Answers tasks of a job as one of its silos would, with a single pass over its examples.

    :param method: bound to the job.
    :param directory: for the private state.
    :ivar answered: how many tasks it has answered.
    :ivar unsuited: why it answers none, or no more of them; None where it does.
    """

    def __init__(self, method: Method, silo: str, directory: Path) -> None:
        self.answered, self.unsuited = 0, None if _has_classes(method) else "targets cannot be made up"
        self._method, self._silo = method, silo
        self._states = PrivateStateStore(directory)
        self._runner: TaskRunner | None = None

    def __call__(self, task: SiloTask) -> None:
        """Answer the task, and keep what the method keeps.

        :raises MethodError: when the silo half fails.
        """
        if self.unsuited is not None:
            return
        try:
            self._answer(task)
            self.answered += 1
        except DataInvalid as error:
            self.unsuited = f"it wants other examples: {error}"
        except FedsiloError:
            raise
        except Exception as error:
            raise MethodError(
                f"step {task.step!r} of method {self._method.name} fails in round {task.round} on made-up examples: "
                f"{error_summary(error)}{place_of(error)}; correct the silo half"
            ) from error

    def _answer(self, task: SiloTask) -> None:
        if self._runner is None:
            self._runner = _runner_on_made_up_examples(self._method, self._silo)
        private = self._states.load(str(self.answered) if self.answered else None)
        reply = self._runner.run(task, private)
        self._states.store(str(self.answered + 1), private if reply.private is None else reply.private)


def _has_classes(method: Method) -> bool:
    return bind(method.spec.task, method.spec.data).single_label


def _runner_on_made_up_examples(method: Method, silo: str) -> TaskRunner:
    from fedsilo.learning.examples import Examples
    from fedsilo.learning.models import build_module, signature
    from fedsilo.learning.parameters import parts_of
    from fedsilo.silo.context import LocalContext

    once = {"device": "cpu", "local_epochs": 1, "local_steps": None, "min_steps": 1}
    spec = method.spec.model_copy(update={"training": method.spec.training.model_copy(update=once)})
    task, random = bind(spec.task, spec.data), np.random.default_rng(0)
    shape = (EXAMPLES, *spec.data.input_shape)
    tokens = task.vocabulary
    features = random.random(shape, np.float32) if tokens is None else random.integers(0, tokens, shape)
    labels = np.arange(EXAMPLES) % task.outputs
    train = Examples.from_arrays(features, labels, "cpu", task)
    module = build_module(spec.model, spec.data, 0, spec.task)
    whole, parts = signature(module, task), parts_of(spec.model.parameters, module)
    shared = parts.signature(whole) if parts else whole
    context = LocalContext(spec, shared, silo, train, train.take(np.arange(0)), 1, 1, parts=parts)
    return TaskRunner(type(method)(spec, method.config), context)
