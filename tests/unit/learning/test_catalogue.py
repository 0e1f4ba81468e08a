from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.job import LearningTaskSpec
from fedsilo.errors import FedsiloError
from fedsilo.learning.catalogue import ARCHITECTURES, Finding, check_model
from fedsilo.learning.models import build_model
from tests.unit.learning.specs import data_spec, model_spec

IMAGE = (3, 32, 32)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_takes_an_image_and_has_a_summary(name: str) -> None:
    (task, *_) = sorted(ARCHITECTURES[name].tasks)
    assert check_model(model_spec(name), data_spec(*IMAGE), LearningTaskSpec(name=task)) == []
    assert ARCHITECTURES[name].summary


FAULTS: list[tuple[str, dict[str, object], tuple[int, ...], Finding]] = [
    ("mlp", {"hidden": [5, 0]}, (4,), ("spec.model.config.hidden[1]", 0, "is too small", "use 1 or more")),
    (
        "mlp",
        {"hidden": [5, "x"]},
        (4,),
        (
            "spec.model.config.hidden[1]",
            "x",
            "is a string, not a whole number",
            "write a whole number without quotes",
        ),
    ),
    (
        "mlp",
        {"bias": 1},
        (4,),
        ("spec.model.config.bias", 1, "is a number, not true or false", "write true or false"),
    ),
    ("lenet", {"padding": 1}, IMAGE, ("spec.model.config.padding", 1, "is not a known choice", "use 0 or 2")),
    (
        "resnet8",
        {"width": 2048},
        IMAGE,
        ("spec.model.config.width", 2048, "is too large", "use 1024 or less"),
    ),
    (
        "mlp",
        {"hiden": [5]},
        (4,),
        ("spec.model.config.hiden", [5], "is not a known field", "did you mean hidden?"),
    ),
    (
        "simple_cnn",
        {"zzz": 5},
        IMAGE,
        ("spec.model.config.zzz", 5, "is not a known field", "use one of bias, projection"),
    ),
    (
        "lenet",
        {},
        (1, 8, 8),
        (
            "spec.data.inputShape",
            [1, 8, 8],
            "is too small for lenet, whose images are at least 16x16",
            "set spec.model.config.padding: 2, or use larger images",
        ),
    ),
    (
        "simple_cnn",
        {},
        (1, 8, 28),
        (
            "spec.data.inputShape",
            [1, 8, 28],
            "is too small for simple_cnn, whose images are at least 16x16",
            "use larger images or the model mlp",
        ),
    ),
    (
        "torchvision:resnet18",
        {},
        (1, 8, 8),
        (
            "spec.data.inputShape",
            [1, 8, 8],
            "is too small for torchvision:resnet18, whose images are at least 32x32",
            "set spec.model.config.stem: cifar, or use larger images",
        ),
    ),
    (
        "resnet8",
        {},
        (64,),
        (
            "spec.data.inputShape",
            [64],
            "is not the shape of an image, which resnet8 needs",
            "give [channels, height, width], or use the model mlp",
        ),
    ),
    (
        "python:hospital",
        {},
        (4,),
        (
            "spec.model.name",
            "python:hospital",
            "does not name a Python factory",
            "write python:package.module:factory, for example python:hospital.networks:make",
        ),
    ),
]


@pytest.mark.parametrize(("name", "config", "shape", "finding"), FAULTS)
def test_faults(name: str, config: dict[str, object], shape: tuple[int, ...], finding: Finding) -> None:
    assert check_model(model_spec(name, **config), data_spec(*shape)) == [finding]


def test_all_faults_of_a_configuration_at_once() -> None:
    found = check_model(model_spec("mlp", hidden=[0], bias="no", more=1), data_spec(4))
    assert {path for path, *_ in found} == {
        "spec.model.config.hidden[0]",
        "spec.model.config.bias",
        "spec.model.config.more",
    }


def test_an_unknown_name_is_guessed_or_answered_with_the_known_ones() -> None:
    [(path, value, _, remedy)] = check_model(model_spec("lennet"), data_spec(*IMAGE))
    assert (path, value, remedy) == ("spec.model.name", "lennet", "did you mean lenet?")
    [(*_, remedy)] = check_model(model_spec("vision"), data_spec(*IMAGE))
    assert remedy.startswith("use one of mlp, lenet, ")
    assert "torchvision:resnet50" in remedy
    assert remedy.endswith(", python:package.module:factory")


def test_a_factory_need_not_be_installed_to_be_checked() -> None:
    assert check_model(model_spec("python:nowhere.networks:make", any=1), data_spec(3)) == []


@given(
    st.sampled_from(["mlp", "lenet", "simple_cnn", "tfcnn", "femnist_cnn", "mnist_cnn"]),
    st.sampled_from([0, 2]),
    st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 20)),
)
def test_what_passes_the_check_can_be_built_and_run(name: str, padding: int, shape: tuple[int, ...]) -> None:
    import torch

    model = model_spec(name, **({"padding": padding} if name == "lenet" else {}))
    data = data_spec(*shape, classes=3)
    if check_model(model, data):
        with pytest.raises(FedsiloError, match=r"spec\.data\.inputShape"):
            build_model(model, data, seed=0)
    else:
        assert build_model(model, data, seed=0)(torch.zeros(2, *shape)).shape == (2, 3)
