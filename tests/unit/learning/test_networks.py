"""Every network that the project builds itself: the same weights for a seed, the papers' scale, gradients that are
numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.learning.catalogue import ARCHITECTURES, RESNETS, TORCHVISION, check_model
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, build_model, evaluating, to_tree
from fedsilo.learning.networks import BUILDERS, OF_TASKS, cct, convolutional
from fedsilo.learning.training import LocalTraining, fit
from tests.unit.learning.specs import data_spec, model_spec

IMAGE = (3, 32, 32)
MAP = ["mlpnet", "tfcnn", "femnist_cnn", "vgg8", "vgg8_bn", "vgg11", "resnet20", "resnet56"]


def build(name: str, seed: int = 0, **config: object) -> Model:
    return build_model(model_spec(name, **config), data_spec(*IMAGE), seed)


def test_every_entry_of_the_catalogue_has_a_builder() -> None:
    assert set(ARCHITECTURES) == set(BUILDERS) | set(OF_TASKS) | {TORCHVISION + name for name in RESNETS}


LARGE_NETWORKS = {"vgg8", "vgg8_bn", "vgg9", "vgg11", "resnet20", "resnet56", "cct", "torchvision:vgg11"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] if name in LARGE_NETWORKS else []) for name in BUILDERS],
)
def test_weights_follow_from_the_seed_and_gradients_are_finite(name: str) -> None:
    model, again, other = build(name), build(name), build(name, seed=1)
    for key, array in to_tree(model).items():
        np.testing.assert_array_equal(to_tree(again)[key], array)
    assert any(not np.array_equal(to_tree(other)[key], array) for key, array in to_tree(model).items())
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(4, *IMAGE, generator=generator), torch.arange(4)
    examples = Examples(x, y)
    before = {key: array.copy() for key, array in to_tree(model).items()}
    report = fit(model, examples, LocalTraining(lr=1e-3, batch_size=4))
    assert np.isfinite(report.loss)
    for key, array in to_tree(model).items():
        assert np.isfinite(array).all(), key
    assert not np.array_equal(to_tree(model)["classifier.weight"], before["classifier.weight"])
    fit(again, examples, LocalTraining(lr=1e-3, batch_size=4))
    for key, array in to_tree(model).items():
        np.testing.assert_array_equal(to_tree(again)[key], array)


@pytest.mark.parametrize("name", MAP)
def test_maps_networks_have_maps_initial_weights(name: str) -> None:
    model = build(name)
    assert model.classifier.bias is None
    assert model.classifier.weight.std().item() == pytest.approx(0.01, rel=0.1)
    for layer in model.encoder.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
            assert layer.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.15)
        if isinstance(layer, nn.Linear):
            assert layer.weight.std().item() == pytest.approx(0.01, rel=0.1)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            assert not layer.bias.any()


def test_a_bias_may_be_asked_for() -> None:
    assert build("tfcnn", bias=True).classifier.bias is not None
    assert build("vgg9", bias=False).classifier.bias is None


def test_batchnorm_is_where_the_papers_have_it() -> None:
    def count_batch_norms(name: str) -> int:
        return sum(isinstance(layer, nn.BatchNorm2d) for layer in build(name).modules())

    assert [count_batch_norms(name) for name in ("vgg8", "vgg8_bn", "vgg11", "resnet20")] == [
        0,
        5,
        0,
        1 + 18 + 2,
    ]


def test_groupnorm_comes_after_the_relu_in_fedbrs_network() -> None:
    kinds = [type(layer) for layer in build("mnist_cnn").encoder.children()]
    assert kinds[:3] == [nn.Conv2d, nn.ReLU, nn.GroupNorm]


def test_a_projection_lies_between_encoder_and_classifier_and_has_no_activation() -> None:
    model = build("simple_cnn", projection=16)
    assert (model.feature, model.classifier.in_features) == (16, 16)
    with evaluating(model), torch.no_grad():
        assert (model.features(torch.rand(8, *IMAGE)) < 0).any()
    (finding,) = check_model(model_spec("simple_cnn", projection=0), data_spec(*IMAGE))
    assert finding[0] == "spec.model.config.projection"


@pytest.mark.parametrize("side", [1, 4, 7, 14])
def test_means_over_a_grid_are_those_of_pytorch(side: int) -> None:
    x = torch.rand(2, 3, side, side + 2)
    torch.testing.assert_close(convolutional.GridMean(4)(x), nn.AdaptiveAvgPool2d(4)(x))


class TestTransformer:
    def test_attention_is_that_of_pytorch(self) -> None:
        layer = cct.AttentionBlock(0.0).eval()
        reference = nn.MultiheadAttention(cct.WIDTH, cct.HEADS, batch_first=True).eval()
        with torch.no_grad():
            reference.in_proj_weight.copy_(layer.queries_keys_values.weight)
            reference.in_proj_bias.zero_()
            reference.out_proj.load_state_dict(layer.out.state_dict())
            x = torch.rand(2, 9, cct.WIDTH)
            torch.testing.assert_close(layer._attention(x), reference(x, x, x)[0], rtol=1e-4, atol=1e-5)

    def test_a_skipped_branch_leaves_the_mean_and_only_while_training(self) -> None:
        layer, branch = cct.AttentionBlock(0.5), torch.ones(4000, 1, 1)
        torch.manual_seed(0)
        kept = layer._drop_path(branch)
        assert set(kept.flatten().tolist()) == {0.0, 2.0}
        assert kept.mean().item() == pytest.approx(1, abs=0.1)
        assert torch.equal(layer.eval()._drop_path(branch), branch)

    def test_positions_follow_the_size_of_the_image(self) -> None:
        for side, tokens in ((32, 256), (31, 256), (4, 4)):
            model = build_model(model_spec("cct"), data_spec(1, side, side), 0)
            assert to_tree(model)["encoder.positions"].shape == (1, tokens, 256)
            with evaluating(model), torch.no_grad():
                assert model(torch.rand(2, 1, side, side)).shape == (2, 10)
