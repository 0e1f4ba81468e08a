"""The silo's side of a round: run one step of the method's silo half on the silo's own examples."""

from __future__ import annotations

from dataclasses import replace

from fedsilo.encodings.registry import encoding_of
from fedsilo.encodings.trees import decoded_tree
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.scores import require_metrics
from fedsilo.learning.own_training import import_trainer
from fedsilo.methods.building_blocks.feature_statistics import disclose
from fedsilo.methods.building_blocks.private_steps import require_examples_apart
from fedsilo.methods.checks import check_training
from fedsilo.methods.contract import learned_tensors
from fedsilo.methods.interface import (
    EVALUATE,
    INITIAL,
    LOCAL,
    PERSONAL,
    PERSONAL_ACCURACY,
    PREPROCESSING,
    BatchedStep,
    Reply,
    SiloTask,
)
from fedsilo.methods.method import Method
from fedsilo.methods.state import State
from fedsilo.silo.context import LocalContext
from fedsilo.silo.division import divided, of_method
from fedsilo.silo.encoded import encoded
from fedsilo.silo.handed_out import require_private, trainer_adds_noise
from fedsilo.silo.optimizer_state import kept_state, with_kept_state
from fedsilo.silo.scoring import declared_scores, scored, unscored


class TaskRunner:
    """Runs tasks of one job in one silo.

    :param method: bound to the job.
    :param tried: whether another silo of this process has tried the same network.
    :raises ManifestInvalid: when the method cannot train as the job says, or the job's own training or what computes
        its metrics is not installed.
    :raises MethodError: when that does not load, or, in a network whose steps are private, examples see each other or
        anything of them is kept beside what its parameters learn.
    """

    def __init__(self, method: Method, context: LocalContext, *, tried: bool = False) -> None:
        for path, value, problem, remedy in check_training(method):
            raise ManifestInvalid(f"{path}: {value!r}: {problem}; {remedy}")
        if method.spec.training.trainer is not None:
            import_trainer(method.spec.training.trainer)
        if not tried:
            require_examples_apart(context, context.untrained)
        self.method = method
        self.context = context
        self._steps = method.silo()
        self._chosen = ChosenMetrics.of_job(method.spec)
        if method.spec.evaluation.test_dataset is None:
            require_metrics(self._chosen)

    def batched_step(self, step: str) -> BatchedStep | None:
        """The step, where the method can do it for several silos at once."""
        found = self._steps.get(step)
        return found if isinstance(found, BatchedStep) else None

    def run(self, task: SiloTask, private: State) -> Reply:
        """Run one task.

        :param private: what the silo kept from its last acknowledged reply.
        :raises MethodError: when the silo half has no such step or does not return a reply.
        """
        try:
            task = self.received(task)
            return self.leaving(self._answer(task, private), task, private)
        finally:
            if self.context.kept_network is not None:
                self.context.kept_network.release()

    def received(self, task: SiloTask) -> SiloTask:
        """The task with whole tensors, where the job has them sent as parts.

        :raises Problem: when they are not what the job says.
        """
        encoding = encoding_of(self.method.spec.download)
        if encoding is None:
            return task
        contract = self.method.contract(task.step, self.context.signature, task.settings)
        shapes = learned_tensors(self.context.signature, contract)
        trees = _of_method(task).trees
        decoded = {name: decoded_tree(tree, shapes, encoding) for name, tree in trees.items()}
        return replace(task, trees={**task.trees, **decoded})

    def leaving(self, reply: Reply, task: SiloTask, private: State) -> Reply:
        """The reply as the job wants it sent.

        :raises MethodError: when a private one has a tensor that is neither noised nor as it was handed out.
        """
        if trainer_adds_noise(self.method.spec):
            require_private(reply, task)
        upload = self.method.spec.upload
        if not upload.is_encoded:
            return reply
        contract = self.method.contract(task.step, self.context.signature, task.settings)
        return encoded(reply, _of_method(task), private, contract, upload.feeds_errors_back)

    def _answer(self, task: SiloTask, private: State) -> Reply:
        if task.step == PREPROCESSING and task.step not in self._steps:
            return disclose(self.context, {})
        context = self.context_of(task, private)
        task = _of_method(task)
        if context.parts is None:
            return _with_preprocessing(self._run(context, task, private), context)
        reply = self._run(context, task, of_method(private))
        own = {PERSONAL: context.whole(task.trees["model"])} if self._makes_personal(task) else {}
        reply = divided(reply, context.parts, context.initial or {}, private, own)
        return _with_preprocessing(reply, context)

    def _makes_personal(self, task: SiloTask) -> bool:
        """Whether the task's model, with the silo's own tensors, is the model that the silo has from now on."""
        return (
            task.step == EVALUATE and self.method.models.in_silos(self.method.spec) and "model" in task.trees
        )

    def _run(self, context: LocalContext, task: SiloTask, private: State) -> Reply:
        step = self._steps.get(task.step)
        if step is None and task.step == EVALUATE:
            return self._evaluate(context, task, private)
        if step is None:
            raise MethodError(f"the silo half of method {self.method.name} has no step {task.step!r}")
        reply = step(context, task, private)
        if not isinstance(reply, Reply):
            raise MethodError(f"step {task.step!r} of method {self.method.name} returned no Reply")
        return self.completed(reply, task, private, context)

    def context_of(self, task: SiloTask, private: State) -> LocalContext:
        """The context of one task: with what it hands out, and what the job keeps in the silo."""
        context = self.context
        if PREPROCESSING in task.trees:
            context = replace(context, preprocessing=task.trees[PREPROCESSING])
        if INITIAL in task.trees:
            local = private.tree(LOCAL) if LOCAL in private.trees else {}
            context = replace(context, initial=task.trees[INITIAL], local=local)
        if context.spec.training.optimizer.state == "keep":
            context = replace(context, kept=kept_state(private, task.phase))
        return context

    @staticmethod
    def completed(reply: Reply, task: SiloTask, private: State, context: LocalContext) -> Reply:
        """The reply of a step that had this context, with what the silo keeps beside what the method keeps."""
        return reply if context.kept is None else with_kept_state(reply, private, task.phase, context.kept)

    def _evaluate(self, context: LocalContext, task: SiloTask, private: State) -> Reply:
        """Score the task's model and the silo's own, where they exist, on the validation examples."""
        metrics: dict[str, float] = {}
        if len(context.validation) == 0:
            return unscored(context, self._chosen) if "model" in task.trees else Reply()
        if "model" in task.trees:
            architecture = self.method.models.shared_architecture(self.method.spec, task.settings)
            module = context.module(task.trees["model"], architecture)
            if self._chosen.any:
                reply = scored(context, module, self._chosen)
                return replace(reply, metrics={**reply.metrics, **self._personal(context, private)})
            metrics = declared_scores(
                context, evaluate(module, context.validation, task=context.learning_task)
            )
        return Reply(samples=len(context.validation), metrics={**metrics, **self._personal(context, private)})

    def _personal(self, context: LocalContext, private: State) -> dict[str, float]:
        """The score of the silo's own model, where it has one."""
        if self.method.models.personal is None or PERSONAL not in private.trees:
            return {}
        model = context.module(private.tree(PERSONAL), self.method.models.own_architecture(self.method.spec))
        own = evaluate(model, context.validation)
        return {PERSONAL_ACCURACY: own.accuracy}


def _of_method(task: SiloTask) -> SiloTask:
    """The task without the trees that are the job's own."""
    of_job = (INITIAL, PREPROCESSING)
    return replace(task, trees={name: tree for name, tree in task.trees.items() if name not in of_job})


def _with_preprocessing(reply: Reply, context: LocalContext) -> Reply:
    """The reply, whose private state has what is done with raw values beside the silo's own model, which takes them."""
    own = reply.private
    if own is None or PERSONAL not in own.trees or context.preprocessing is None:
        return reply
    return replace(reply, private=own.with_trees(**{PREPROCESSING: dict(context.preprocessing)}))
