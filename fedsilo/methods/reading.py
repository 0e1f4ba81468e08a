"""What a server half may read of a round's updates: a mean, sums over silos, or single silos too.

A half says which by the type that its `aggregate` takes, and is handed that: an object with exactly these verbs.
Whoever checks or describes a job reads the same type. Sums are enough for `spec.aggregation.secure`; of a half that
reads a mean of models, `spec.aggregation.rule` may take the place of that mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Protocol, get_args, get_type_hints

from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.methods.state import Tree
from fedsilo.methods.step import Payload
from fedsilo.wire.combine import Quotient


class AcceptedUpdates(Protocol):
    """The accepted updates of a round as they are stored, in the order of the job's silo references.

    Where only sums are seen they are one update, named as no silo is: the sum of all of them.
    """

    silos: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many silos' updates count."""

    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""

    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""

    def names(self, silo: str, kind: str) -> Sequence[str]:
        """Names of the silo's tensors of that kind."""

    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind."""

    def combine(self, payloads: Sequence[Payload], rule: str) -> Tree:
        """Tensors of payloads, all of one kind, over silos, each combined as its payload says; see `Sums.combine`."""

    def quotient(self, over: Quotient, rule: str, scale: float, distance: float) -> tuple[Tree, float]:
        """Sum over silos of v_k times each tensor of the model, and the sum of v_k; see `Sums.quotient`."""

    def mean_metric(self, metric: str, rule: str) -> float:
        """Average of a metric over silos by a rule; see `Sums.mean_metric`."""


class Mean:
    """The mean of what silos sent in a round.

    :param rule: of averaging, `samples` or `uniform`.
    :param payloads: what silos send in the step.
    :param averaged: (kind, shares by silo) -> what takes the place of the weighted sum, where the job has a rule.
    """

    def __init__(
        self,
        updates: AcceptedUpdates,
        rule: str,
        payloads: Sequence[Payload],
        averaged: Callable[[str, Mapping[str, float]], Tree] | None = None,
    ) -> None:
        self._updates, self._rule, self._payloads = updates, rule, payloads
        self._averaged = averaged or updates.weighted_sum

    def __getattr__(self, name: str) -> Any:
        """Name the type that has a verb which this one has not.

        :raises AttributeError: always.
        """
        wider = next((other.__name__ for other in (Sums, Updates) if hasattr(other, name)), None)
        remedy = f"; let aggregate take {wider}, which has" if wider else ""
        raise AttributeError(f"{type(self).__name__} has no {name}{remedy}", name=name, obj=self)

    @property
    def count(self) -> int:
        """How many silos' updates count."""
        return self._updates.count

    def total_samples(self) -> int:
        """Samples that the silos state together."""
        return sum(map(self._updates.samples, self._updates.silos))

    def mean(self, kind: str) -> Tree:
        """Average of a kind of tensor over the silos that answered, by the job's rule.

        :raises MethodError: a payload of that kind is of classes, or says that it is combined otherwise.
        """
        self._require_averaged(kind)
        return self._averaged(kind, self._shares())

    def _require_averaged(self, kind: str) -> None:
        for payload in self._payloads_of(kind):
            if not payload.averaged_by_rule:
                why = (
                    "is of classes"
                    if payload.per_class
                    else f"is combined as {type(payload.combine).__name__}"
                )
                raise MethodError(f"mean of {kind}: payload {payload.name} {why}; read combine({kind!r})")

    def _payloads_of(self, kind: str) -> list[Payload]:
        """What silos send of a kind.

        :raises MethodError: nothing of that kind.
        """
        found = [payload for payload in self._payloads if payload.kind == kind]
        if not found:
            kinds = ", ".join(dict.fromkeys(payload.kind for payload in self._payloads)) or "none"
            raise MethodError(f"no payload of the step is of kind {kind!r}; read one of {kinds}")
        return found

    def _shares(self, silos: Sequence[str] | None = None, weights: str | None = None) -> dict[str, float]:
        chosen = self._updates.silos if silos is None else silos
        return mean_weights(self._updates, weights or self._rule, chosen)


class Sums(Mean):
    """Sums over all silos that answered in a round, in which no silo needs to be seen by itself."""

    def combine(self, kind: str) -> Tree:
        """A kind of tensor over the silos that sent it, each as its payload says it is combined.

        By default a mean: by the job's rule, and of a class over the silos that sent that class, each alike. See
        `fedsilo.wire.combine` for others. A block that no silo sent is missing; where only a sum is seen, one that is
        added is zeros.
        """
        return self._updates.combine(self._payloads_of(kind), self._rule)

    def quotient(self, over: Quotient, scale: float = 1.0, distance: float = 1.0) -> tuple[Tree, float]:
        """The sum over silos of v_k times each tensor of its model, and the sum of v_k = scale p_k / (m_k distance).

        :param over: as the step's payload says it: metric m_k, and whether p_k is the part of the job's average or 1.
        """
        return self._updates.quotient(over, self._rule, scale, distance)

    def mean_metric(self, metric: str) -> float:
        """Average of a metric that every silo states, by the job's rule; in a sum that must be by samples."""
        return self._updates.mean_metric(metric, self._rule)


class Updates(Sums):
    """The accepted updates of a round, silo by silo, in the order of the job's silo references."""

    @property
    def silos(self) -> tuple[str, ...]:
        """Names of the silos whose updates count."""
        return self._updates.silos

    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""
        return self._updates.samples(silo)

    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""
        return self._updates.metrics(silo)

    def names(self, silo: str, kind: str) -> Sequence[str]:
        """Names of the silo's tensors of that kind."""
        return self._updates.names(silo, kind)

    def shares(self, silos: Sequence[str] | None = None, weights: str | None = None) -> Mapping[str, float]:
        """What part of the average each silo is, p_k; they add up to one.

        :param silos: over which the average is normalised; all that answered by default.
        :param weights: `samples` or `uniform`; the job's rule by default.
        """
        return self._shares(silos, weights)

    @override
    def mean(self, kind: str, silos: Sequence[str] | None = None, weights: str | None = None) -> Tree:
        """Average of a kind of tensor with these shares; see `Mean.mean`."""
        self._require_averaged(kind)
        return self._averaged(kind, self._shares(silos, weights))

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind; about one model of memory, however many silos.

        A tensor that some silos left out is summed over the others.
        """
        return self._updates.weighted_sum(kind, weights)

    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied: for small things such as class statistics."""
        return self._updates.tensors(silo, kind)


def mean_weights(updates: AcceptedUpdates, rule: str, silos: Sequence[str]) -> dict[str, float]:
    """Weights that add up to one over the given silos: n_k / sum of n (`samples`) or 1 / |K| (`uniform`).

    :raises MethodError: when no silo holds a sample.
    """
    sizes = {silo: updates.samples(silo) if rule == "samples" else 1 for silo in silos}
    total = sum(sizes.values())
    if total == 0:
        raise MethodError(
            f"no silo of {', '.join(silos)} states any sample, so their updates cannot be weighted"
        )
    return {silo: size / total for silo, size in sizes.items()}


def read_by(server: Callable[..., Any]) -> type[Mean]:
    """What a half may read, as the annotation of the function that makes it says.

    :param server: annotated with `ServerHalf[Sums]` and the like, or with the half's own class.
    :returns: `Updates` where it says nothing.
    """
    half = get_type_hints(server).get("return")
    if stated := get_args(half):
        return _one_of(stated[0])
    aggregate = getattr(half, "aggregate", None)
    hints = {} if aggregate is None else get_type_hints(aggregate)
    hints.pop("return", None)
    return _one_of(list(hints.values())[-1] if hints else None)


def annotation_missing(server: Callable[..., Any], enough: type[Mean]) -> str | None:
    """What whoever wrote a half may annotate, so that it is not handed single silos' updates; None where it says.

    :param server: as of `read_by`.
    :param enough: what the half may read in its job.
    """
    half = get_type_hints(server).get("return")
    if get_args(half):
        return None
    aggregate = getattr(half, "aggregate", None)
    if aggregate is None:
        return "annotate its server with the class of its half"
    *_, last = signature(aggregate).parameters
    if get_type_hints(aggregate).get(last) in (Mean, Sums, Updates):
        return None
    return f"annotate {last}, the last parameter of its aggregate, with {enough.__name__} if it reads no more than that"


def _one_of(stated: Any) -> type[Mean]:
    return stated if stated in (Mean, Sums, Updates) else Updates
