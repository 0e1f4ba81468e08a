"""A model as every method sees it, an encoder and a linear classifier; its way to and from plain arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedsilo.api.job import DataSpec, FederatedJobSpec, ModelSpec
from fedsilo.api.python_reference import PYTHON, python_reference
from fedsilo.errors import ManifestInvalid, MethodError, Problem
from fedsilo.learning import networks
from fedsilo.learning.catalogue import ARCHITECTURES, check_model
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.learning.seeding import derive_seed
from fedsilo.wire.tensors import ModelSignature, TensorSpec, Tree

CONCATENATED = "concatenated"


class Model(nn.Module):
    """classifier(encoder(x)): x (n, *input shape) -> logits (n, classes).

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

    def features(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> (n, feature)."""
        features: Tensor = self.encoder(x if self.preprocessing is None else self.preprocessing(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> logits (n, classes)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


class Concatenated(nn.ModuleList):
    """Encoders side by side: x -> [E_1(x); ...; E_K(x)], (n, sum of their widths)."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, *input shape) -> (n, sum of widths)."""
        return torch.cat([encoder(x) for encoder in self], dim=1)


def build_model(model: ModelSpec, data: DataSpec, seed: int) -> Model:
    """The job's network on the CPU with initial weights drawn from `seed`, and from no other generator.

    The name `concatenated` is of models that a method made, with config {encoders: K, base: a model}: K encoders of
    the base's architecture and one linear classifier with bias.

    :raises ManifestInvalid: unknown name, wrong configuration, unsuitable inputs, or a missing factory.
    :raises MethodError: a factory that fails or whose product is not a model as described here.
    """
    if model.name == CONCATENATED:
        parts = [
            build_model(ModelSpec(**model.config["base"]), data, seed)
            for _ in range(model.config["encoders"])
        ]
        width = sum(part.feature for part in parts)
        return Model(Concatenated(part.encoder for part in parts), nn.Linear(width, data.class_count))
    if findings := check_model(model, data):
        raise ManifestInvalid("\n".join(_line(*finding) for finding in findings))
    if not model.name.startswith(PYTHON):
        with torch.device("meta"), _NothingDrawn():
            # A tensor that is too large is refused here, before memory is asked for.
            signature(Model(*_built_in(model, data)))
    with torch.random.fork_rng([]):
        # Not torch.manual_seed, which would seed the GPU's generators too.
        torch.default_generator.manual_seed(seed)
        if model.name.startswith(PYTHON):
            return _from_factory(model, data)
        return Model(*_built_in(model, data))


class _NothingDrawn(TorchFunctionMode):
    """Tensors of the meta device hold no numbers; to draw some for them, PyTorch would import its compiler."""

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


def initial_model(spec: FederatedJobSpec) -> Tree:
    """The job's model with its initial weights, the same at the aggregator and in every silo."""
    return to_tree(build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")))


def signature(model: Model) -> ModelSignature:
    """Names, shapes and dtypes of the model's tensors in the order of its state.

    :raises MethodError: a tensor that cannot travel: an unsupported dtype, or more than 1 GiB.
    """
    specs = []
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise MethodError(
                f"model: state {name!r}: is a {type(tensor).__name__}; keep tensors only in the state"
            )
        try:
            specs.append(TensorSpec(name, tuple(tensor.shape), _dtype(tensor)))
        except Problem as problem:
            raise MethodError(f"model: {problem.detail}") from None
    return ModelSignature(tuple(specs), classes=model.classifier.out_features, feature=model.feature)


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
    state = model.state_dict()
    for name in sorted(tree.keys() - state.keys()):
        raise MethodError(
            f"model: tensor {name!r}: is not in this model; load it into the architecture it came from"
        )
    for name, tensor in state.items():
        if name not in tree:
            raise MethodError(
                f"model: tensor {name!r}: is missing; give all {len(state)} tensors of the model"
            )
        array, expected = tree[name], _dtype(tensor)
        if array.shape != tuple(tensor.shape):
            raise MethodError(f"model: tensor {name!r}: shape {array.shape}: give {tuple(tensor.shape)}")
        if array.dtype != expected:
            raise MethodError(f"model: tensor {name!r}: dtype {array.dtype}: give {expected}")
    for name, tensor in state.items():
        # torch.tensor copies first and therefore accepts an array that is not writeable.
        tensor.copy_(torch.tensor(tree[name]))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module is in the mode it had, frozen ones included."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _built_in(model: ModelSpec, data: DataSpec) -> tuple[nn.Module, nn.Linear]:
    config: Any = ARCHITECTURES[model.name].config.model_validate(model.config)
    return networks.build(model.name, data.input_shape, data.class_count, config)


def _from_factory(model: ModelSpec, data: DataSpec) -> Model:
    factory = _import_factory(model.name)
    try:
        product = factory(data.input_shape, data.class_count, **model.config)
    except Exception as failure:
        raise MethodError(
            f"spec.model.name: {model.name!r}: the factory failed with {type(failure).__name__}: {failure}; "
            "it is called as factory(input_shape, classes, **config)"
        ) from failure
    return _checked(product, model.name, data)


def _import_factory(name: str) -> Callable[..., object]:
    reference = python_reference(name)
    assert reference is not None, "check_model has seen to the form"
    module, attribute = reference
    try:
        factory: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as missing:
        raise ManifestInvalid(
            f"spec.model.name: {name!r}: cannot be imported: {missing}; install its package in the "
            "images of aggregator and trainer"
        ) from missing
    return factory


def _checked(product: object, name: str, data: DataSpec) -> Model:
    """The product of a factory as a model, tried on one blank input so that a misfit shows before round 1."""
    encoder, classifier = getattr(product, "encoder", None), getattr(product, "classifier", None)
    if not isinstance(encoder, nn.Module) or not isinstance(classifier, nn.Linear):
        raise MethodError(
            f"spec.model.name: {name!r}: the factory gave a {type(product).__name__}; it needs .encoder "
            "(a Module) and .classifier (a Linear)"
        )
    if classifier.out_features != data.class_count:
        raise MethodError(
            f"spec.model.name: {name!r}: classifier.out_features: {classifier.out_features}: make it "
            f"{data.class_count}, the job's spec.data.classes"
        )
    model = product if isinstance(product, Model) else Model(encoder, classifier)
    signature(model)
    _try(model, name, data.input_shape)
    return model


def _try(model: Model, name: str, shape: tuple[int, ...]) -> None:
    expected = (1, model.feature)
    try:
        with evaluating(model), torch.no_grad():
            found = tuple(model.features(torch.zeros(1, *shape)).shape)
    except Exception as failure:
        raise MethodError(
            f"spec.model.name: {name!r}: encoder: fails on an input of shape {[1, *shape]}: {failure}; "
            "fit the network to spec.data.inputShape"
        ) from failure
    if found != expected:
        raise MethodError(
            f"spec.model.name: {name!r}: encoder: output of shape {list(found)}: make it {list(expected)}, "
            "the input of the classifier"
        )


def _line(path: str, value: object, problem: str, remedy: str) -> str:
    return f"{path}: {value!r}: {problem}; {remedy}"
