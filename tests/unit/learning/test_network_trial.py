"""A factory's network is tried before round 1, as evaluation and as training will call it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedsilo.errors import MethodError
from fedsilo.learning.models import build_module, load_tree, signature, to_tree, try_in_training
from tests.federate import job_spec
from tests.unit.learning.specs import data_spec, model_spec

FACTORIES = "python:tests.unit.learning.factories"


def build(name: str, **config: Any) -> nn.Module:
    return build_module(model_spec(f"{FACTORIES}:{name}", **config), data_spec(6, classes=4), seed=0)


def begin_job(name: str, batch_size: int = 8, **config: Any) -> None:
    """What a silo does with the network before round 1."""
    model = {"name": f"{FACTORIES}:{name}", "config": config}
    spec = job_spec("fedavg", 2, model=model, training={"batchSize": batch_size})
    try_in_training(build(name, **config), spec)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("dict", "gives a dict with 'logits'"),
        ("tuple", "gives a tuple of 2"),
        ("dataclass", "gives a Prediction with 'logits', 'hidden'"),
        ("none", "gives None"),
        ("numpy", "gives a ndarray"),
        ("short", r"output of shape \[1, 3\]"),
        ("whole", "gives numbers of int64"),
    ],
)
def test_outputs_of_another_kind_are_named_with_what_is_wanted(kind: str, found: str) -> None:
    with pytest.raises(MethodError, match=rf"{found}.*\[1, 4\]") as refused:
        build("odd_outputs", kind=kind)
    assert "inputShape" not in str(refused.value)
    in_training = found.replace("[1, 3", "[2, 3")
    with pytest.raises(MethodError, match=rf"in training mode: {in_training}.*\[2, 4\]"):
        begin_job("odd_outputs", kind=kind, only_training=True)


def test_features_of_another_kind_in_training_are_the_encoders() -> None:
    with pytest.raises(MethodError, match=r"encoder: in training mode: gives a tuple of 2.*\[2, 3\]"):
        begin_job("odd_features")


def test_a_network_that_needs_the_jobs_batches_in_training_is_tried_on_one() -> None:
    begin_job("crowded_network", examples=8)
    with pytest.raises(
        MethodError, match=r"in training mode: fails on an input of shape \[8, 6\]: ValueError"
    ):
        begin_job("crowded_network", examples=9)


def test_the_trial_in_training_changes_no_tensor_no_mode_and_no_random_number() -> None:
    spec = job_spec("fedavg", 2, model={"name": f"{FACTORIES}:crowded_network", "config": {"examples": 1}})
    module = build("crowded_network", examples=1)
    module[0].eval()  # type: ignore[index]
    before = {name: array.copy() for name, array in to_tree(module).items()}
    state = torch.random.get_rng_state()
    try_in_training(module, spec)
    assert all((before[name] == array).all() for name, array in to_tree(module).items())
    assert [part.training for part in module.children()] == [False, True, True]
    assert torch.equal(state, torch.random.get_rng_state())


def test_lazy_layers_get_their_sizes_from_a_blank_example_and_their_weights_from_the_seed() -> None:
    one, again = build("lazy_network"), build("lazy_network")
    assert [tensor.shape for tensor in signature(one).tensors][:2] == [(5, 6), (5,)]
    assert all((to_tree(again)[name] == array).all() for name, array in to_tree(one).items())
    assert all(parameter.requires_grad for parameter in one.parameters())


def test_lazy_parts_are_an_encoder_and_a_classifier() -> None:
    found = signature(build("lazy_parts"))
    assert (found.feature, found.classes) == (5, 4)


def test_a_lazy_layer_that_nothing_calls_is_named() -> None:
    with pytest.raises(
        MethodError, match=r"the lazy layer 'head' has no sizes yet; .*call the network once in the factory"
    ):
        build("half_lazy_network")


def test_a_state_of_copies_is_refused_as_nothing_could_be_loaded_into_it() -> None:
    with pytest.raises(MethodError, match=r"state 'weight': is no parameter or buffer of the network"):
        build("copied_state")


def test_a_parameter_that_learns_and_has_no_place_in_the_state_is_refused() -> None:
    with pytest.raises(MethodError, match=r"parameter 'bias': learns and is not in the state"):
        build("short_state")
    assert list(to_tree(build("short_state", frozen=True))) == ["weight"]


def test_a_state_that_fails_is_the_networks_own_fault() -> None:
    with pytest.raises(
        MethodError, match=r"state_dict\(\) fails: RuntimeError: no state today at .*factories"
    ):
        build("failing_state")


def test_a_renamed_state_is_that_of_the_networks_own_tensors() -> None:
    module = build("renamed_network")
    tree = {name: array + 1 for name, array in to_tree(module).items()}
    load_tree(module, tree)
    assert (module.get_parameter("inner.0.weight").detach().numpy() == tree["0.weight"]).all()


def test_weights_of_bfloat16_are_refused_with_the_setting_that_computes_in_it() -> None:
    with pytest.raises(MethodError, match=r"encoder\.weight.*bfloat16.*spec\.training\.precision: bfloat16"):
        build("bfloat16")
