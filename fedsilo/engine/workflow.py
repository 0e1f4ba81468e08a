"""What a job does, exchange by exchange, as functions of its state: no files, no signatures, no clock.

Everything that runs a job takes the silos' assignments from here and folds their updates here: the round engine over
its directory, a simulation in memory, and the traffic estimate with synthetic updates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.data.schema import Schema
from fedsilo.engine.context import JobContext
from fedsilo.engine.decoded import DecodedUpdates
from fedsilo.engine.federated_evaluation import evaluation_record
from fedsilo.engine.fold import FoldedUpdates, mean_metrics, public_metrics
from fedsilo.engine.handed_out import OF_JOB, ContractOf, HandedOut, as_silos_saw_it, with_encoded_trees
from fedsilo.engine.record import Record
from fedsilo.engine.result import Released
from fedsilo.engine.robust.rule import RobustMean
from fedsilo.engine.round import OpenRound
from fedsilo.engine.secure_sums import ANSWERED, SecureSums, without_secure_sums
from fedsilo.engine.selection import (
    best_round,
    best_snapshot,
    keep_best,
    stops_early,
    with_best,
    without_best,
)
from fedsilo.engine.summed_updates import TOGETHER, summed_openly
from fedsilo.errors import FedsiloError, JobFailed, MethodError, Problem
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.preprocessing_numbers import to_document
from fedsilo.methods.building_blocks.feature_statistics import KIND, pool
from fedsilo.methods.building_blocks.preprocessing import numbers_of
from fedsilo.methods.interface import (
    EVALUATE,
    INITIAL,
    PREPROCESSING,
    Assignment,
    Exchange,
    ServerHalf,
    Snapshot,
)
from fedsilo.methods.method import Method, averaging_of
from fedsilo.methods.schedule import is_evaluated, participants
from fedsilo.methods.secure_sums import (
    CONFIRMED,
    UNMASK,
    asks_the_answered,
    is_summed,
    require_one_broadcast,
)
from fedsilo.methods.state import Scalar, State, StoredTree, Tree, stored_of
from fedsilo.wire import Contract

if TYPE_CHECKING:
    from fedsilo.engine.scoring import GlobalEvaluation

log = logging.getLogger("fedsilo.engine")

OF_EVERY_METHOD = (EVALUATE, PREPROCESSING)
"""Steps that are the job's own, and leave a method's state as it is."""


class Workflow:
    """One job's exchanges, and the method's server half that runs them.

    :param evaluation: the test set, where the aggregator holds one.
    :param sums: of a job with secure aggregation; without, updates are summed in the open, in one exchange.
    :ivar exchanges: all of them, in order.
    :ivar rounds: number of the last round.
    """

    def __init__(
        self,
        method: Method,
        context: JobContext,
        evaluation: GlobalEvaluation | None = None,
        sums: SecureSums | None = None,
    ) -> None:
        self._method = method
        self._half: ServerHalf[Any] = method.server()
        self._context = context
        self._evaluation = evaluation
        self._sums = sums
        self._metrics = ChosenMetrics.of_job(context.spec)
        if context.spec.evaluation.test_dataset is not None or not method.models.shared.is_model:
            self._metrics = ChosenMetrics.of(None)  # those of the aggregator, not of the silos
        self._contracts: dict[tuple[str, tuple[tuple[str, int], ...]], Contract] = {}
        self.exchanges = method.exchanges()
        if sums is None:
            self.exchanges = [exchange for exchange in self.exchanges if exchange.of is None]
        self.rounds = self.exchanges[-1].round

    @property
    def method(self) -> Method:
        """Declaration of the job's method."""
        return self._method

    @property
    def spec(self) -> FederatedJobSpec:
        """The job's specification."""
        return self._context.spec

    @property
    def test_schema(self) -> Schema | None:
        """Names and types of the test set, where the aggregator holds one."""
        return None if self._evaluation is None else self._evaluation.schema

    @property
    def parameters(self) -> int:
        """Numbers in the job's model."""
        return sum(prod(tensor.shape) for tensor in self._context.signature.tensors)

    def start(self) -> State:
        """State before round 1.

        :raises MethodError: when the method's server half fails, here and below.
        """
        with self._method_errors("start"):
            state = self._half.start(self._context)
        # Whoever goes on with the job, or checks it, finds there what it began with.
        context = self._context
        kept = context.initial is not None or context.parts is not None
        return state.with_trees(**{INITIAL: context.initial_weights()}) if kept else state

    def stored(self, state: State, blobs: Path) -> State:
        """The state with all its trees in files, of which new ones are named by the job's hash."""
        return state.store(blobs, self.spec.digest_algorithm)

    def round(self, state: State, exchange: Exchange) -> OpenRound:
        """Who takes part in an exchange, and how many answers count."""
        spec = self.spec
        silos = participants(spec, exchange, self._context.silos)
        quorum = spec.participation.quorum(len(silos))
        if self._sums is not None and asks_the_answered(spec, exchange):
            silos = tuple(state.values[ANSWERED])
        return OpenRound(silos, quorum, spec.participation.round_deadline.seconds)

    def assign(
        self, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> tuple[State, Mapping[str, Assignment]]:
        """What each silo is assigned, and the state that holds the trees which the assignments name."""
        if exchange.of is not None:
            assert self._sums is not None, "there is no such exchange without"
            return state, self._sums.assigned(exchange.phase.step, silos)
        masking: Mapping[str, Assignment] = {}
        if self._sums is not None and is_summed(self.spec, exchange.phase.step):
            masking = self._sums.assigned(exchange.phase.step, silos)
        if exchange.phase.step == PREPROCESSING:
            return state, {silo: Assignment(_trees(masking, silo)) for silo in silos}
        offered, assignments = self._offered(state, exchange, silos)
        if self.spec.aggregation.secure:
            with self._method_errors("silo_settings"):
                own = {silo: self._method.silo_settings(exchange, silo) for silo in assignments}
            require_one_broadcast(self._method.name, assignments, own)
        # With every task: a guard keeps the blobs of a task and of the one before it.
        added = {INITIAL: INITIAL} if self._method.models.hand_out_initial(self._method.spec) else {}
        added |= {PREPROCESSING: PREPROCESSING} if PREPROCESSING in state.trees else {}
        return offered, {
            silo: replace(given, trees={**given.trees, **added, **_trees(masking, silo)})
            for silo, given in assignments.items()
        }

    def _offered(
        self, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> tuple[State, Mapping[str, Assignment]]:
        """The same without what the job itself adds."""
        plain = self._assign(state, exchange, silos)
        return with_encoded_trees(
            self.spec.download, self._context.signature, self._contract_of(exchange), *plain
        )

    def _assign(
        self, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> tuple[State, Mapping[str, Assignment]]:
        """The same with trees as they are, and not as they are sent."""
        if exchange.phase.step != EVALUATE:
            with self._method_errors("assign"):
                return state, self._half.assign(self._context, _of_method(state), exchange, silos)
        if self.spec.evaluation.test_dataset is not None or not self._method.models.shared.is_model:
            return state, dict.fromkeys(silos, Assignment())  # their own models only
        snapshot, parts = self.model(state), self._context.parts
        if parts is not None:  # silos have the others, or have them as a blob
            snapshot = replace(snapshot, tree={n: a for n, a in snapshot.tree.items() if n in parts.shared})
        assignment = Assignment({"model": EVALUATE}, snapshot.settings)
        return state.with_trees(**{EVALUATE: snapshot.tree}), dict.fromkeys(silos, assignment)

    def _contract_of(self, exchange: Exchange) -> ContractOf:
        return lambda assignment: self.contract(exchange.phase.step, assignment.settings)

    def contract(self, step: str, settings: Mapping[str, Scalar]) -> Contract:
        """What may come back for a task of this step."""
        signature = self._context.signature
        dimensions = self._method.dimensions(signature, settings)
        key = step, tuple(sorted(dimensions.items()))
        if key not in self._contracts:
            contract = self._method.contract(step, signature, settings)
            openly = contract.summed if self._sums is None else None
            self._contracts[key] = openly or contract
        return self._contracts[key]

    def fold(
        self,
        state: State,
        exchange: Exchange,
        updates: FoldedUpdates,
        offered: State,
        assignments: Mapping[str, Assignment],
    ) -> tuple[State, dict[str, Any]]:
        """State after the exchange, and the figures of its updates for the record of the round.

        :param offered: and `assignments`: what `assign` gave for the exchange.
        """
        if self.spec.aggregation.secure:
            return self._fold_sum(state, exchange, updates, offered, assignments)
        if exchange.phase.step in OF_EVERY_METHOD:
            return self._fold_figures(state, exchange, updates)
        return self._fold_training(state, exchange, updates, offered, assignments)

    def _fold_figures(
        self, state: State, exchange: Exchange, updates: FoldedUpdates
    ) -> tuple[State, dict[str, Any]]:
        """The same of scores, or of what preprocessing follows from."""
        if exchange.phase.step == PREPROCESSING:
            return self.aggregate(state, exchange, updates), {}
        return state, evaluation_record(updates, self._metrics, self.spec.data.class_count)

    def _fold_sum(
        self,
        state: State,
        exchange: Exchange,
        updates: FoldedUpdates,
        offered: State,
        assignments: Mapping[str, Assignment],
    ) -> tuple[State, dict[str, Any]]:
        """The same of an exchange, or of a step of it, where sums only are seen."""
        whole, sums = exchange.of or exchange, self._sums
        contract = self._method.contract(whole.phase.step, self._context.signature, {})
        assert contract.summed is not None, "that of an exchange that is summed"
        layout = self._method.layout(whole.phase.step, contract.summed)
        if sums is None:
            answered = updates.silos
            summed = summed_openly(updates, layout, self.spec.aggregation.rule, lambda: state.tree("model"))
        elif exchange.phase.step == UNMASK:
            answered = tuple(state.tree(CONFIRMED))
            with _ending_the_job():
                summed = sums.unmasked(self.spec, state, exchange, updates, layout)
        else:
            with _ending_the_job():
                return sums.heard(self.spec, state, exchange, updates), {}
        before = without_secure_sums(state)
        if whole.phase.step in OF_EVERY_METHOD:
            return self._fold_figures(before, whole, summed)
        if sums is not None and self.spec.download.is_lossy:  # the steps of the exchange hand out messages
            offered, assignments = self._offered(before, whole, answered)
        after, found = self._fold_training(before, whole, summed, offered, assignments)
        alone = {"silos": list(answered), "samples": summed.samples(TOGETHER)}
        return after, {**found, "samples": {}, "silos": {}, "summed": alone}

    def _fold_training(
        self,
        state: State,
        exchange: Exchange,
        updates: FoldedUpdates,
        offered: State,
        assignments: Mapping[str, Assignment],
    ) -> tuple[State, dict[str, Any]]:
        """The same of a training exchange, with updates of silos or a sum of them."""
        handed_out = self._handed_out(state, exchange, offered, assignments)
        if self.spec.upload.is_encoded:
            updates = DecodedUpdates(updates, handed_out.tasks)
        found = {
            "samples": {silo: updates.samples(silo) for silo in updates.silos},
            "training": mean_metrics(updates),
            "silos": {silo: public_metrics(updates, silo) for silo in updates.silos},
        }
        seen = handed_out.seen(state)
        rule, robust = self.spec.aggregation.rule, None
        if rule is not None and not self.spec.aggregation.secure:  # with sums, guards have clipped
            robust = RobustMean(rule, seen.tree("model"))
        after = handed_out.restored(state, self.aggregate(seen, exchange, updates, robust))
        _require_finite_state(state, after)
        return after, found if robust is None else found | {"kept": robust.kept}

    def _handed_out(
        self, state: State, exchange: Exchange, offered: State, assignments: Mapping[str, Assignment]
    ) -> HandedOut:
        """The trees that the silos of the round were given, as they decoded them.

        Without any where the state's own trees will do: nothing is lossy on its way to the silos, no update encoded.
        """
        download, contract = self.spec.download, self._contract_of(exchange)
        if not self.spec.upload.is_encoded and not download.is_lossy:
            return HandedOut({}, {})
        if not download.is_lossy:  # silos see what is only compressed on its way as it was before
            offered, assignments = self._assign(state, exchange, self.round(state, exchange).silos)
        return as_silos_saw_it(download, self._context.signature, contract, offered, assignments)

    def aggregate(
        self, state: State, exchange: Exchange, updates: FoldedUpdates, robust: RobustMean | None = None
    ) -> State:
        """State after the exchange; an evaluation leaves it as it is.

        :param robust: what takes the place of the mean of models, where the job has a rule for it.
        :raises DataInvalid: when preprocessing needs a feature that no silo has.
        """
        data = self.spec.data
        if exchange.phase.step == EVALUATE:
            return state
        if exchange.phase.step == PREPROCESSING:
            assert data.preprocessing is not None
            sent = ((silo, updates.tensors(silo, KIND)) for silo in updates.silos)
            return state.with_trees(**{PREPROCESSING: numbers_of(data.preprocessing, pool(sent, data))})
        with self._method_errors("aggregate"):
            context = replace(self._context, preprocessing=self._preprocessing(state))
            averaged = None if robust is None else partial(robust.mean, updates)
            read = self._method.reads(updates, averaging_of(self._method), averaged)
            after = self._half.aggregate(context, _of_method(state), exchange, read)
        kept = {name: state.trees[name] for name in OF_JOB if name in state.trees}
        after = after.with_trees(**kept)
        return keep_best(state, after)

    def score(self, state: State, exchange: Exchange) -> dict[str, Any]:
        """Score of the new model for the record, where the aggregator scores it after this exchange."""
        due = is_evaluated(self.spec, exchange.round, self.rounds)
        scored = self._method.models.shared.is_model and self._makes_state(exchange)
        if self._evaluation is None or not due or not scored:
            return {}
        snapshot = self.model(state)
        return self._evaluation.score(
            snapshot.tree, self.architecture(snapshot), self._preprocessing(state)
        ).record()

    def _makes_state(self, exchange: Exchange) -> bool:
        """Whether the method has another state after an exchange."""
        if self._sums is not None and self.spec.aggregation.secure:
            if exchange.of is None or exchange.phase.step != UNMASK:
                return False
            exchange = exchange.of
        return exchange.phase.step not in OF_EVERY_METHOD

    def model(self, state: State) -> Snapshot:
        """The model as it would be used now, with the initial values of what silos do not share."""
        with self._method_errors("model"):
            snapshot, parts = self._half.model(self._context, _of_method(state)), self._context.parts
        if parts is None:
            return snapshot
        return replace(snapshot, tree=parts.whole(state.tree(INITIAL), snapshot.tree))

    def selected(self, state: State, history: Sequence[Record]) -> State:
        """State after a complete round: its model is the best one now, if its scores say so.

        :param history: of the completed rounds, this one among them.
        """
        best, last = best_round(self.spec.evaluation, history), history[-1]["round"]
        return state if best is None or best.round != last else with_best(state, last, self.model(state))

    def released(self, state: State, history: Sequence[Record]) -> Released:
        """The model that the job ends with: the best one where the job asks for that, or else the last."""
        snapshot, best = best_snapshot(state), best_round(self.spec.evaluation, history)
        if snapshot is None:
            return self._last(state, history, None if best is None else history[-1]["round"])
        assert best is not None
        return self._released(state, snapshot, history, best.round)

    def checkpoint(self, position: int, state: State, history: Sequence[Record]) -> Released | None:
        """The model to be kept by the way, where one is due after so many complete exchanges."""
        every = self.spec.evaluation.checkpoints
        if every is None or position == 0 or not self.is_last_of_round(position - 1):
            return None
        number = self.exchanges[position - 1].round
        return self._last(state, history, number) if number % every == 0 else None

    def _last(self, state: State, history: Sequence[Record], number: int | None) -> Released:
        return self._released(state, self.model(state), history, number)

    def _released(
        self, state: State, snapshot: Snapshot, history: Sequence[Record], number: int | None
    ) -> Released:
        architecture, described = self.architecture(snapshot), self.description(state, snapshot)
        return Released(snapshot.tree, architecture, described, history, number)

    def is_over(self, position: int, history: Sequence[Record]) -> bool:
        """Whether nothing follows: all exchanges are complete, or those that follow are not needed any more."""
        return position == len(self.exchanges) or stops_early(self.spec.evaluation, history)

    def architecture(self, snapshot: Snapshot) -> ModelSpec:
        """Architecture of that model."""
        return self._method.models.shared_architecture(self._method.spec, snapshot.settings)

    def description(self, state: State, snapshot: Snapshot) -> dict[str, Any]:
        """What `model.json` says beside the job's own fields."""
        numbers = self._preprocessing(state)
        with self._method_errors("report"):
            report = dict(self._method.models.shared.report(snapshot))
        return report if numbers is None else report | {PREPROCESSING: to_document(numbers)}

    def _preprocessing(self, state: State) -> Tree | None:
        """What is done with every value first, where the job does anything."""
        return state.tree(PREPROCESSING) if PREPROCESSING in state.trees else None

    def is_last_of_round(self, position: int) -> bool:
        """Whether the exchange at this place completes its round."""
        after = position + 1
        return after == len(self.exchanges) or self.exchanges[after].round != self.exchanges[position].round

    @contextmanager
    def _method_errors(self, function: str) -> Iterator[None]:
        """Report any error of the method, which may be a third party's, as a `MethodError`."""
        try:
            yield
        except (FedsiloError, OSError):
            raise
        except Exception as error:
            log.exception("%s of method %s", function, self._method.name)
            text = f"{function} of method {self._method.name} failed: {type(error).__name__}: {error}"
            raise MethodError(text) from error


@contextmanager
def _ending_the_job() -> Iterator[None]:
    """A block that makes a sum of updates which are stored: what does not hold in them holds after no restart.

    :raises JobFailed: in place of a refusal in the protocol.
    """
    try:
        yield
    except Problem as problem:
        raise JobFailed(str(problem)) from problem


def _of_method(state: State) -> State:
    """The state without what the engine adds."""
    own = without_secure_sums(without_best(state))
    if not any(name in own.trees for name in OF_JOB):
        return own
    return State({name: tree for name, tree in own.trees.items() if name not in OF_JOB}, own.values)


def _trees(assignments: Mapping[str, Assignment], silo: str) -> Mapping[str, str]:
    return assignments[silo].trees if silo in assignments else {}


def _require_finite_state(before: State, after: State) -> None:
    """Check that every tensor that is new holds finite numbers only.

    :raises MethodError: naming one that does not.
    """
    for name, tree in after.trees.items():
        if stored_of(tree) is not None or tree is before.trees.get(name):
            continue
        assert not isinstance(tree, StoredTree)
        for tensor, array in tree.items():
            if array.dtype.kind == "f" and not _is_finite(array):
                raise MethodError(
                    f"the aggregator's {name}: tensor {tensor!r} holds NaN or infinity: training diverged; lower the "
                    "learning rates in spec.training and spec.method.config, or set spec.training.gradientClip"
                )


def _is_finite(array: np.ndarray) -> bool:
    # The sum of an array with a value that is not finite is not finite either, and cheaper than testing each value.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
