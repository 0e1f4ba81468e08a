"""A job's network, which is an encoder and a linear classifier or any module, and its way to and from plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from fedsilo.api.data import DataSpec
from fedsilo.api.job import FederatedJobSpec, LearningTaskSpec, ModelSpec
from fedsilo.api.python_import import error_summary, import_user_code, place_of
from fedsilo.api.python_reference import PYTHON
from fedsilo.errors import ManifestInvalid, MethodError, Problem
from fedsilo.learning import networks
from fedsilo.learning.catalogue import ARCHITECTURES, check_model
from fedsilo.learning.constants import require_constants, set_constants_apart
from fedsilo.learning.held_state import HeldState
from fedsilo.learning.made_models import CONCATENATED_MODEL, GATED_MODEL, ConcatenatedConfig, GatedConfig
from fedsilo.learning.network_trial import in_mode, initialise_lazy_layers, try_network
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.state_names import dtype_name, require_own_tensors, require_tensors
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.registry import bind
from fedsilo.wire.tensors import ModelSignature, TensorSpec, Tree

_REMEDIES = {
    torch.bfloat16: "; keep the weights in float32 and let spec.training.precision: bfloat16 compute in it"
}
"""What else to do about a dtype that cannot travel."""


class Model(nn.Module):
    """A network classifier(encoder(x)) for x (n, *input shape) -> logits (n, classes), or other outputs of that number.

    What methods call the feature is the encoder's output, the input of the last linear layer.

    :ivar preprocessing: what is done with raw values first, where the job says so; no part of the model's state.
    """

    def __init__(self, encoder: nn.Module, classifier: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = classifier
        self.preprocessing: Preprocessing | None = None

    @property
    def feature(self) -> int:
        """Width of the feature."""
        return self.classifier.in_features

    def preprocessed_inputs(self, x: Tensor) -> Tensor:
        """Raw values as the encoder takes them, (n, *input shape) -> the same."""
        return x if self.preprocessing is None else self.preprocessing(x)

    def features(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> (n, feature)."""
        features: Tensor = self.encoder(self.preprocessed_inputs(x))
        return features

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> logits (n, classes)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits if self.preprocessing is None else self.preprocessing.raw_outputs(logits)


class ConcatenatedEncoder(nn.ModuleList):
    """Encoders side by side: x -> [E_1(x); ...; E_K(x)], (n, sum of their widths)."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> (n, sum of widths)."""
        return torch.cat([encoder(x) for encoder in self], dim=1)


class GatedModel(nn.Module):
    """Two models of one architecture, mixed for each example by a gate on the first one's feature phi.

    With a = sigmoid(gate(phi)), `logits` are mixed to a z + (1 - a) z', and `probabilities` to
    a softmax(z) + (1 - a) softmax(z'), of which the output is the logarithm.
    """

    def __init__(self, shared: Model, private: Model, mixes: str) -> None:
        super().__init__()
        self.shared, self.private = shared, private
        self.gate = nn.Linear(shared.feature, 1)
        self._mixes = mixes

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> logits (n, classes), or logarithms of probabilities, whose softmax they are."""
        phi = self.shared.features(x)
        one, other, gate = self.shared.classifier(phi), self.private(x), self.gate(phi)
        if self._mixes == "logits":
            a = gate.sigmoid()
            logits: Tensor = a * one + (1 - a) * other
            return logits
        shares = functional.logsigmoid(gate), functional.logsigmoid(-gate)
        return torch.logaddexp(shares[0] + one.log_softmax(dim=1), shares[1] + other.log_softmax(dim=1))


def build_model(model: ModelSpec, data: DataSpec, seed: int, task: LearningTaskSpec | None = None) -> Model:
    """The job's network as an encoder and a classifier, as `build_module` makes it.

    :raises MethodError: also a network of another structure.
    """
    built = build_module(model, data, seed, task)
    return as_model(built, f"spec.model.name: {model.name!r}: the factory gave")


def as_model(module: nn.Module, what: str) -> Model:
    """The network where it is an encoder and a classifier.

    :param what: words before its type, for the message.
    :raises MethodError: it is not.
    """
    if isinstance(module, Model):
        return module
    raise MethodError(
        f"{what} a {type(module).__name__}; it needs .encoder (a Module) and .classifier (a Linear)"
    )


def build_module(
    model: ModelSpec, data: DataSpec, seed: int, task: LearningTaskSpec | None = None
) -> nn.Module:
    """The job's network on the CPU with initial weights drawn from `seed`, and from no other generator.

    It is a `Model` wherever it has the parts of one and gives one vector for each example.

    The name `concatenated` is of models that a method made, with config {encoders: K, base: a model}: K encoders of
    the base's architecture and one linear classifier with bias. So is `gated`, with config {base: a model, mixes:
    logits or probabilities}, see `GatedModel`.

    :raises ManifestInvalid: unknown name, wrong configuration, unsuitable inputs, or a missing factory.
    :raises MethodError: a factory that fails or whose product is no network for the job's examples and learning task.
    """
    learning_task = bind(task, data)
    if model.name == CONCATENATED_MODEL:
        made = ConcatenatedConfig.model_validate(model.config)
        parts = [build_model(made.base, data, seed) for _ in range(made.encoders)]
        width = sum(part.feature for part in parts)
        return Model(
            ConcatenatedEncoder(part.encoder for part in parts), nn.Linear(width, learning_task.outputs)
        )
    if model.name == GATED_MODEL:
        mixed = GatedConfig.model_validate(model.config)
        shared, private = (build_model(mixed.base, data, seed, task) for _ in range(2))
        return GatedModel(shared, private, mixed.mixes)
    if findings := check_model(model, data, task):
        raise ManifestInvalid("\n".join(_line(*finding) for finding in findings))
    if not model.name.startswith(PYTHON):
        blank_model(model, learning_task)
    with torch.random.fork_rng([]):
        # Not torch.manual_seed, which would seed the GPU's generators too.
        torch.default_generator.manual_seed(seed)
        if model.name.startswith(PYTHON):
            return _from_factory(model, learning_task)
        return _built_in(model, learning_task)


def try_in_training(module: nn.Module, spec: FederatedJobSpec) -> None:
    """Try a factory's network as training will call it; evaluation has called it when it was built.

    Two examples tell what it gives. One that fails on them may want a whole batch, and gets one then. Its tensors are
    afterwards as they were.

    :raises MethodError: when it fails in training mode, or gives there what the job cannot learn from.
    """
    name, batch = spec.model.name, spec.training.batch_size
    if not name.startswith(PYTHON):
        return
    tried = _tried_part(module, name, bind(spec.task, spec.data))
    held = HeldState(module)
    with torch.random.fork_rng([]):
        for examples in (2, batch):
            try:
                try_network(*tried, examples=examples, training=True)
                return
            except MethodError as failure:
                if failure.__cause__ is None or examples == batch:
                    raise
            finally:
                held.restore()


def blank_model(model: ModelSpec, task: LearningTask) -> nn.Module:
    """A built-in network whose tensors have names, shapes and dtypes, and no numbers; it takes no memory.

    :raises MethodError: a tensor that is too large to travel.
    """
    with without_memory():
        blank = _built_in(model, task)
        signature(blank)
        return blank


@contextmanager
def without_memory() -> Iterator[None]:
    """A block whose new tensors have names, shapes and dtypes, and no numbers."""
    with torch.device("meta"), _SkipMetaInit():
        yield


class _SkipMetaInit(TorchFunctionMode):
    """Tensors of the meta device hold no numbers; to draw some for them, PyTorch would import its compiler."""

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def with_preprocessing(module: nn.Module, preprocessing: Preprocessing) -> None:
    """Have raw values preprocessed before the module gets them, and its outputs after; no part of its state."""
    if isinstance(module, Model):
        module.preprocessing = preprocessing
        return

    def preprocess_hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return preprocessing.to(inputs[0].device)(inputs[0]), *inputs[1:]

    def output_hook(_module: nn.Module, _inputs: object, outputs: Tensor) -> Tensor:
        return preprocessing.to(outputs.device).raw_outputs(outputs)

    module.register_forward_pre_hook(preprocess_hook)
    if preprocessing.target_mean is not None:
        module.register_forward_hook(output_hook)


def initial_model(spec: FederatedJobSpec) -> Tree:
    """The job's model with its initial weights, the same at the aggregator and in every silo."""
    seed = derive_seed(spec.training.seed, "model")
    return to_tree(build_module(spec.model, spec.data, seed, spec.task))


def signature(model: nn.Module, task: LearningTask | None = None) -> ModelSignature:
    """Names, shapes and dtypes of the model's tensors in the order of its state.

    :param task: what it learns; classification by default.
    :raises MethodError: a tensor that cannot travel: an unsupported dtype, no sizes yet, or more than 1 TiB.
    """
    specs = []
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise MethodError(
                f"model: state {name!r}: is a {type(tensor).__name__}; keep tensors only in the state"
            )
        if is_lazy(tensor):
            layer = name.rpartition(".")[0]
            raise MethodError(
                f"model: tensor {name!r}: the lazy layer {layer!r} has no sizes yet; call it in the forward pass, or "
                "call the network once in the factory"
            )
        try:
            specs.append(TensorSpec(name, tuple(tensor.shape), dtype_name(tensor)))
        except Problem as problem:
            raise MethodError(f"model: {problem.detail}{_REMEDIES.get(tensor.dtype, '')}") from None
    if not isinstance(model, Model):
        return ModelSignature(tuple(specs), task.outputs if task is not None and task.single_label else 0)
    classes = model.classifier.out_features if task is None or task.single_label else 0
    return ModelSignature(tuple(specs), classes, model.feature)


def to_tree(model: nn.Module) -> Tree:
    """The state as arrays in host memory.

    A model on the CPU shares its memory with them, so that a large model is not held twice: copy what must
    outlast the next training step. From a GPU the arrays are copies.
    """
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in model.state_dict().items()}


def load_tree(model: nn.Module, tree: Mapping[str, np.ndarray]) -> None:
    """Copy arrays, read-only and memory-mapped ones too, into the model's own tensors, on whatever device.

    :raises MethodError: a missing or unexpected tensor, another shape or dtype; the model is unchanged.
    """
    require_tensors(model, tree)
    for name, tensor in model.state_dict().items():
        if tensor.device.type == "cpu":
            # One copy. What torch makes of an array that is not writeable is another, or comes with a warning.
            np.copyto(tensor.detach().numpy(), tree[name])
        else:
            tensor.copy_(torch.tensor(tree[name]))


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Put a model into evaluation mode inside; afterwards each module is in the mode it had, frozen ones included."""
    return in_mode(model, training=False)


def _built_in(model: ModelSpec, task: LearningTask) -> nn.Module:
    config: Any = ARCHITECTURES[model.name].config.model_validate(model.config)
    built = networks.build(model.name, task, config)
    return built if isinstance(built, nn.Module) else Model(*built)


def _from_factory(model: ModelSpec, task: LearningTask) -> nn.Module:
    remedy = "install its package in the images of aggregator and trainer"
    factory: Callable[..., object] = import_user_code(model.name, field="spec.model.name", remedy=remedy)
    try:
        product = factory(task.data.input_shape, task.outputs, **model.config)
    except (Exception, SystemExit) as failure:
        raise MethodError(
            f"spec.model.name: {model.name!r}: the factory failed with {error_summary(failure)}"
            f"{place_of(failure, (__file__,))}; it is called as factory(input_shape, classes, **config)"
        ) from failure
    return _checked_network(product, model.name, task)


def _checked_network(product: object, name: str, task: LearningTask) -> nn.Module:
    """The product of a factory, tried on one blank input so that a misfit shows before round 1."""
    encoder, classifier = getattr(product, "encoder", None), getattr(product, "classifier", None)
    parts = isinstance(encoder, nn.Module) and isinstance(classifier, nn.Linear)
    if isinstance(product, nn.Module) and not (parts and task.output_shape == (task.outputs,)):
        return _tried_network(product, name, task)
    if not isinstance(encoder, nn.Module) or not isinstance(classifier, nn.Linear):
        raise MethodError(
            f"spec.model.name: {name!r}: the factory gave a {type(product).__name__}; it needs .encoder "
            "(a Module) and .classifier (a Linear)"
        )
    if classifier.out_features != task.outputs:
        raise MethodError(
            f"spec.model.name: {name!r}: classifier.out_features: {classifier.out_features}: make it "
            f"{task.outputs}, the job's {task.outputs_field}"
        )
    return _tried_network(product if isinstance(product, Model) else Model(encoder, classifier), name, task)


def _tried_network(module: nn.Module, name: str, task: LearningTask) -> nn.Module:
    """The network, once nothing of it keeps it from being evaluated or sent."""
    real = torch.get_default_device().type != "meta"  # on which PyTorch would import its compiler
    if real:
        initialise_lazy_layers(module, f"spec.model.name: {name!r}: network", task)
    try:
        set_constants_apart(module)
        signature(module)
        if real:
            require_own_tensors(module)
    except MethodError:
        raise
    except Exception as failure:  # whatever a foreign network's own hooks raise
        raise MethodError(
            f"spec.model.name: {name!r}: network: state_dict() fails: {error_summary(failure)}"
            f"{place_of(failure, (__file__,))}; correct its hooks"
        ) from failure
    if real:
        try_network(*_tried_part(module, name, task))
        require_constants(module)
    return module


def _tried_part(
    module: nn.Module, name: str, task: LearningTask
) -> tuple[nn.Module, str, LearningTask, tuple[int, ...], str]:
    """What of a network is called, as `try_network` takes it: the encoder, where it has one."""
    subject = f"spec.model.name: {name!r}"
    if isinstance(module, Model):
        return module.encoder, f"{subject}: encoder", task, (module.feature,), "the input of the classifier"
    return module, f"{subject}: network", task, task.output_shape, "what the learning task needs"


def _line(path: str, value: object, problem: str, remedy: str) -> str:
    return f"{path}: {value!r}: {problem}; {remedy}"
