"""Buffers that hold NaN or infinity from the start are constants: they stay, and training with them goes well."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import MethodError
from fedsilo.learning.batched import BatchedClient, fit_batched
from fedsilo.learning.built import built_here
from fedsilo.learning.constants import require_constants, set_constants_apart
from fedsilo.learning.custom_training import (
    ExampleSet,
    TrainingBudget,
    TrainingContext,
    TrainingData,
    TrainingOutcome,
    train_with,
)
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, build_model, build_module, load_tree, signature, to_tree
from fedsilo.learning.plan import LocalTraining
from fedsilo.learning.training import fit
from tests.federate import job_spec
from tests.unit.learning.specs import data_spec, model_spec

FACTORIES = "python:tests.unit.learning.factories"
PLAN = LocalTraining(epochs=1, batch_size=8, lr=0.1, seed=3)
EXAMPLES = Examples(torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2)


def network(name: str) -> nn.Module:
    return build_module(model_spec(f"{FACTORIES}:{name}"), data_spec(4, classes=2), seed=0)


def causal() -> Model:
    return build_model(model_spec(f"{FACTORIES}:causal"), data_spec(4, classes=2), seed=0)


def test_a_constant_is_no_part_of_what_silos_send() -> None:
    model = causal()
    assert "encoder.mask" not in {tensor.name for tensor in signature(model).tensors}
    assert all(np.isfinite(array).all() for array in to_tree(model).values())
    other = causal()
    load_tree(other, to_tree(model))
    assert torch.equal(other.get_buffer("encoder.mask"), model.get_buffer("encoder.mask"))
    assert model.get_buffer("encoder.mask").isinf().sum() == 6


def test_a_network_with_a_constant_trains() -> None:
    model = causal()
    mask = model.get_buffer("encoder.mask").clone()
    assert math.isfinite(fit(model, EXAMPLES, PLAN).loss)
    assert torch.equal(model.get_buffer("encoder.mask"), mask)
    fit_batched(model, [BatchedClient(to_tree(model), EXAMPLES, PLAN)] * 2)


def test_a_constant_that_training_changes_is_named_with_the_remedy() -> None:
    with pytest.raises(MethodError, match=r"buffer '0\.least': held NaN or infinity when .*persistent=False"):
        fit(network("ranging"), EXAMPLES, PLAN)


def test_what_diverges_is_still_divergence() -> None:
    def breaks(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        total: Tensor = model(x).sum() * math.inf
        return total

    with pytest.raises(MethodError, match="training diverged"):
        fit(causal(), EXAMPLES, PLAN, loss=breaks)


def test_weights_that_begin_without_a_number_are_refused_before_round_1() -> None:
    document = job_spec("fedavg", 1).model_dump(by_alias=True, exclude_none=True)
    document["model"] = {"name": f"{FACTORIES}:undefined_weight"}
    spec = FederatedJobSpec.model_validate(document)
    with pytest.raises(
        MethodError, match=r"tensor 'bias': holds NaN or infinity when it is built; begin with"
    ):
        built_here(spec)


def test_a_buffer_outside_of_the_state_may_hold_and_become_anything() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("cache", torch.full((2,), math.nan), persistent=False)
    set_constants_apart(module)
    module.get_buffer("cache").zero_()
    require_constants(module)


def test_a_buffer_without_a_number_equals_itself() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("unknown", torch.tensor([math.nan, 1.0]))
    set_constants_apart(module)
    require_constants(copy.deepcopy(module))
    module.get_buffer("unknown")[1] = 2
    with pytest.raises(MethodError, match="buffer 'unknown'"):
        require_constants(module)


def train_own(name: str) -> TrainingOutcome:
    data = TrainingData(ExampleSet(EXAMPLES), ExampleSet(EXAMPLES))
    context = TrainingContext(torch.device("cpu"), 7, 1, 3, TrainingBudget(1, 4, 0.1, 60))
    return train_with(f"python:tests.unit.learning.trainers:{name}", causal(), data, context, ("loss",))


def test_an_own_training_may_return_a_network_that_has_the_constant_in_its_state() -> None:
    assert "encoder.mask" in train_own("rebuilding").model.state_dict()


def test_an_own_training_leaves_constants_as_they_were() -> None:
    with pytest.raises(MethodError, match=r"buffer 'encoder\.mask': held NaN or infinity"):
        train_own("unmasking")
