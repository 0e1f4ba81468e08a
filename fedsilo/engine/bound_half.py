"""A method's server half in one job: it sees its own part of the state, and its errors are the method's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedsilo.engine.context import JobContext
from fedsilo.errors import FedsiloError, MethodError
from fedsilo.methods.interface import Assignment, Exchange, ServerHalf, Snapshot
from fedsilo.methods.method import averaging_of
from fedsilo.methods.state import Scalar, State, require_finite
from fedsilo.plain_numbers import plain_number
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.transform import ReceivedExchange

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger("fedsilo.engine")


class BoundHalf:
    """What the workflow asks of a method.

    :raises MethodError: in every function, when the method fails, which may be a third party's.
    """

    def __init__(self, plan: JobPlan, context: JobContext) -> None:
        self._plan, self._method, self._context = plan, plan.method, context
        self._half: ServerHalf[Any] = plan.method.server()

    def start(self) -> State:
        """The method's state before round 1."""
        with self._errors("start"):
            return self._half.start(self._context)

    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Mapping[str, Assignment]:
        """What the method asks of each silo."""
        with self._errors("assign"):
            given = self._half.assign(self._context, self._plan.of_method(state), exchange, silos)
            return {
                silo: replace(each, settings=_plain_settings(each.settings)) for silo, each in given.items()
            }

    def aggregate(self, received: ReceivedExchange, prepared: Callable[[nn.Module], nn.Module]) -> State:
        """The job's state after an exchange of the method's.

        :param prepared: a network -> the network as it takes raw values.
        """
        before, saw = received.state, received.saw()
        seen = self._plan.of_method(before.with_trees(**saw))
        with self._errors("aggregate"):
            step = self._method.steps()[received.exchange.phase.step]
            rule = averaging_of(self._method)
            read = self._method.reads(received.updates, rule, step.payloads, received.averaged)
            context = replace(self._context, prepared=prepared)
            after = self._half.aggregate(context, seen, received.exchange, read)
            if not isinstance(after, State):
                raise MethodError(
                    f"aggregate of method {self._method.name} returned {type(after).__name__}; return the State after "
                    "the exchange"
                )
        # A tree that the method has left alone is what it was, and not what silos saw of it.
        alone = [name for name, tree in saw.items() if after.trees.get(name) is tree]
        after = after.with_trees(**{name: before.trees[name] for name in alone if name in before.trees})
        require_finite(before, after)
        return self._plan.with_method(before, after)

    def model(self, state: State) -> Snapshot:
        """The method's model, as silos share it."""
        with self._errors("model"):
            snapshot = self._half.model(self._context, self._plan.of_method(state))
            return replace(snapshot, settings=_plain_settings(snapshot.settings))

    def report(self, snapshot: Snapshot) -> dict[str, Any]:
        """What `model.json` says of the model by the method."""
        with self._errors("report"):
            return dict(self._method.models.shared.report(snapshot))

    def own_settings(self, exchange: Exchange, silo: str) -> Mapping[str, Scalar]:
        """Settings in which a silo's task differs from those of the others."""
        with self._errors("silo_settings"):
            return _plain_settings(self._method.silo_settings(exchange, silo))

    @contextmanager
    def _errors(self, function: str) -> Iterator[None]:
        try:
            yield
        except (FedsiloError, OSError):
            raise
        except Exception as error:
            log.exception("%s of method %s", function, self._method.name)
            text = f"{function} of method {self._method.name} failed: {type(error).__name__}: {error}"
            raise MethodError(text) from error


def _plain_settings(settings: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Settings with numbers of Python, whatever library they are of."""
    return {name: plain_number(value) for name, value in settings.items()}
