from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.models import Model, build_model, evaluating, load_tree, signature, to_tree
from fedsilo.wire.tensors import TensorSpec
from tests.unit.learning.specs import data_spec, model_spec

FACTORIES = "python:tests.unit.learning.factories"

# Parameters by hand from the layer lists; CReFF's ResNet-8 has convolutions of 1728, 2 * 36864, 73728 +
# 147456 and 294912 + 589824, shortcuts of 8192 + 32768, BatchNorms of 2688 and a classifier of 2570.
RESNET20 = 432 + 32 + 3 * 4672 + (13_952 + 576) + 2 * 18_560 + (55_552 + 2176) + 2 * 73_984
"""Parameters of MAP's ResNet20: stem; blocks of 16 channels; then the first block of each width with its shortcut,
and two more."""

NETWORKS = [
    ("simple_cnn", {}, (3, 32, 32), 84, 62_006),
    ("simple_cnn", {}, (1, 28, 28), 84, 44_426),
    ("lenet", {"bias": False}, (1, 28, 28), 256, 416 + 6416 + 2560),
    ("lenet", {"bias": False}, (3, 32, 32), 400, 1216 + 6416 + 4000),
    ("lenet", {"padding": 2}, (1, 8, 8), 64, 416 + 6416 + 650),
    ("mlp", {}, (1, 28, 28), 200, 199_210),
    (
        "mlp",
        {"hidden": [1024, 1024, 128], "bias": False},
        (1, 28, 28),
        128,
        803_840 + 1_049_600 + 131_200 + 1280,
    ),
    ("resnet8", {}, (3, 32, 32), 256, 1728 + 73_728 + 221_184 + 884_736 + 40_960 + 2688 + 2570),
    ("resnet8", {"width": 16}, (3, 32, 32), 64, None),
    ("mlpnet", {}, (1, 28, 28), 128, 803_840 + 1_049_600 + 131_200 + 1280),
    ("tfcnn", {}, (3, 32, 32), 1024, 896 + 18_496 + 36_928 + 10_240),
    ("femnist_cnn", {}, (1, 28, 28), 1024, 832 + 51_264 + 10_240),
    ("mnist_cnn", {}, (1, 28, 28), 128, 640 + 73_856 + 2 * 147_584 + 896 + 1290),
    ("vgg8", {}, (3, 32, 32), 512, 1792 + 73_856 + 295_168 + 1_180_160 + 2_359_808 + 5120),
    ("vgg8_bn", {}, (3, 32, 32), 512, 3_910_784 + 2 * 1472 + 5120),
    ("vgg9", {}, (3, 32, 32), 512, 896 + 18_496 + 73_856 + 147_584 + 295_168 + 590_080 + 2_365_450),
    ("vgg9", {}, (1, 28, 28), 512, None),
    ("vgg11", {}, (3, 32, 32), 512, 9_220_480 + 5120),
    ("torchvision:vgg11", {}, (3, 32, 32), 512, 9_220_480 + 5130),
    ("torchvision:vgg11", {}, (1, 32, 32), 512, 9_220_480 - 1152 + 5130),
    ("resnet20", {}, (3, 32, 32), 64, RESNET20 + 640),
    # Every further block has two convolutions and two BatchNorms; there are six of them at each width.
    ("resnet56", {}, (3, 32, 32), 64, RESNET20 + 640 + 6 * (4672 + 18_560 + 73_984)),
    ("cct", {}, (3, 32, 32), 256, 6912 + 256 * 256 + 7 * 526_336 + 512 + 257 + 2570),
    ("simple_cnn", {"projection": 256}, (3, 32, 32), 256, 62_006 - 850 + 84 * 85 + 85 * 256 + 2570),
    ("torchvision:resnet50", {"stem": "cifar"}, (3, 32, 32), 2048, 23_508_032 - 9408 + 1728 + 20_490),
    ("torchvision:resnet18", {}, (3, 32, 32), 512, 11_181_642),
    ("torchvision:resnet18", {"stem": "cifar"}, (1, 28, 28), 512, 11_181_642 - 9408 + 576),
]


LARGE_MODELS = {
    "vgg11",
    "resnet56",
    "cct",
    "torchvision:vgg11",
    "torchvision:resnet18",
    "torchvision:resnet50",
}


@pytest.mark.parametrize(
    ("name", "config", "shape", "feature", "parameters"),
    [
        pytest.param(*given, marks=[pytest.mark.thorough] if given[0] in LARGE_MODELS else [])
        for given in NETWORKS
    ],
)
def test_networks(
    name: str, config: dict[str, object], shape: tuple[int, ...], feature: int, parameters: int | None
) -> None:
    model = build_model(model_spec(name, **config), data_spec(*shape), seed=0)
    x = torch.rand(2, *shape)
    with evaluating(model), torch.no_grad():
        assert model.features(x).shape == (2, feature)
        assert torch.equal(model(x), model.classifier(model.features(x)))
        assert model(x).shape == (2, 10)
    assert signature(model).feature == model.feature == feature
    assert signature(model).classes == 10
    if parameters is not None:
        assert sum(p.numel() for p in model.parameters()) == parameters


def test_initial_weights_follow_the_papers() -> None:
    lenet = build_model(model_spec("lenet"), data_spec(1, 28, 28), seed=0).state_dict()
    assert lenet["classifier.weight"].std() == pytest.approx(0.01, rel=0.1)
    assert lenet["encoder.3.weight"].std() == pytest.approx((2 / (16 * 25)) ** 0.5, rel=0.1)
    assert not lenet["encoder.0.bias"].any()
    assert not lenet["classifier.bias"].any()
    resnet8 = build_model(model_spec("resnet8"), data_spec(3, 32, 32), seed=0).state_dict()
    assert resnet8["encoder.5.conv2.weight"].std() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.01)


def test_torchvision_resnet_is_torchvisions_own() -> None:
    import torchvision

    published = torchvision.models.resnet18(weights=None, num_classes=10).eval()
    model = build_model(model_spec("torchvision:resnet18"), data_spec(3, 64, 64), seed=4).eval()
    state = {
        name.replace("encoder.", "").replace("classifier", "fc"): t for name, t in model.state_dict().items()
    }
    published.load_state_dict(state)
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model(x), published(x))


def test_the_seed_alone_decides_the_weights() -> None:
    def build(seed: int) -> bytes:
        tree = to_tree(build_model(model_spec("resnet8", width=4), data_spec(1, 8, 8), seed))
        return b"".join(array.tobytes() for array in tree.values())

    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = build(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    assert build(5) == first
    assert build(6) != first


def test_a_perceptron_without_hidden_layers_is_logistic_regression() -> None:
    spec, data = model_spec("mlp", hidden=[]), data_spec(6, classes=4)
    model = build_model(spec, data, seed=0)
    assert [tensor.name for tensor in signature(model).tensors] == ["classifier.weight", "classifier.bias"]
    inputs = torch.ones(3, 6)
    assert torch.equal(model(inputs), model.classifier(inputs))


def test_signature_is_the_state_in_order() -> None:
    model = build_model(model_spec("mlp", hidden=[5], bias=False), data_spec(6, classes=4), seed=0)
    assert signature(model).tensors == (
        TensorSpec("encoder.0.weight", (5, 6), "float32"),
        TensorSpec("encoder.0.bias", (5,), "float32"),
        TensorSpec("classifier.weight", (4, 5), "float32"),
    )
    counted = {t.name: t for t in signature(Model(nn.Sequential(nn.BatchNorm1d(5)), nn.Linear(5, 4))).tensors}
    assert counted["encoder.0.num_batches_tracked"] == TensorSpec(
        "encoder.0.num_batches_tracked", (), "int64"
    )


class TestTrees:
    spec, data = model_spec("resnet8", width=4), data_spec(1, 8, 8)

    def test_round_trip_from_a_read_only_map(self, tmp_path: Path) -> None:
        source, target = build_model(self.spec, self.data, 1), build_model(self.spec, self.data, 2)
        mapped = {}
        for number, (name, array) in enumerate(to_tree(source).items()):
            np.save(tmp_path / f"{number}.npy", array)
            mapped[name] = np.load(tmp_path / f"{number}.npy", mmap_mode="r")
        load_tree(target, mapped)
        for name, tensor in target.state_dict().items():
            assert torch.equal(tensor, source.state_dict()[name]), name

    def test_arrays_share_the_models_memory_and_loading_copies(self) -> None:
        model, other = build_model(self.spec, self.data, 1), build_model(self.spec, self.data, 2)
        tree = to_tree(model)
        load_tree(other, tree)
        with torch.no_grad():
            model.classifier.bias.fill_(3)
        assert (tree["classifier.bias"] == 3).all()
        assert not (other.classifier.bias == 3).any()

    def test_faults_name_the_tensor_and_leave_the_model_alone(self) -> None:
        model = build_model(self.spec, self.data, 1)
        good = {name: array.copy() for name, array in to_tree(model).items()}
        bias = good["classifier.bias"]
        zeros = {name: np.zeros_like(array) for name, array in good.items()}
        faults = [
            ({**zeros, "classifier.bias": bias[:3]}, r"'classifier.bias': shape \(3,\): give \(10,\)"),
            (
                {**zeros, "classifier.bias": bias.astype("f8")},
                "'classifier.bias': dtype float64: give float32",
            ),
            ({**zeros, "classifier.more": bias}, "'classifier.more': is not in this model"),
            ({k: v for k, v in zeros.items() if k != "classifier.bias"}, "'classifier.bias': is missing"),
        ]
        for tree, message in faults:
            with pytest.raises(MethodError, match=message):
                load_tree(model, tree)
        for name, array in to_tree(model).items():
            assert np.array_equal(array, good[name]), name


def test_factory() -> None:
    model = build_model(model_spec(f"{FACTORIES}:good_network", width=9), data_spec(6, classes=4), seed=3)
    again = build_model(model_spec(f"{FACTORIES}:good_network", width=9), data_spec(6, classes=4), seed=3)
    assert (model.feature, model.classifier.out_features) == (9, 4)
    assert np.array_equal(to_tree(model)["encoder.weight"], to_tree(again)["encoder.weight"])
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_encoder", r"gave a Linear; it needs \.encoder"),
        ("wrong_classes", r"classifier\.out_features: 5: make it 4"),
        ("wrong_width", r"output of shape \[1, 3\]: make it \[1, 4\]"),
        ("wrong_input", r"encoder: fails on an input of shape \[1, 6\]"),
        (
            "failing",
            r"failed with RuntimeError: no weights for 4 classes .* at .*/factories\.py:\d+; it is called",
        ),
        ("leaving", r"failed with SystemExit: 0 at .*/factories\.py:\d+; it is called as"),
        ("leaving_later", r"encoder: fails on an input of shape \[1, 6\]: SystemExit: 0; fit"),
        ("bfloat16", r"encoder\.weight: dtype is bfloat16; use float16"),
        ("huge_network", r"encoder\.weight: 6597069766656 bytes; 1099511627776 is the most"),
    ],
)
def test_bad_factories(name: str, message: str) -> None:
    with pytest.raises(MethodError, match=message):
        build_model(model_spec(f"{FACTORIES}:{name}"), data_spec(6, classes=4), seed=0)


@pytest.mark.parametrize(
    "name", ["tests.unit.learning.nowhere:good_network", "tests.unit.learning.factories:nothing"]
)
def test_factory_that_is_not_there(name: str) -> None:
    with pytest.raises(
        ManifestInvalid, match=r"cannot be imported: .*(nowhere|nothing).*; install its package"
    ):
        build_model(model_spec(f"python:{name}"), data_spec(6), seed=0)


def test_a_layer_that_is_too_large_is_refused_before_memory_is_asked_for() -> None:
    with pytest.raises(MethodError, match=r"encoder\.1\.weight: \d+ bytes; 1099511627776 is the most"):
        build_model(model_spec("mlp"), data_spec(65536, 65536), seed=0)


def test_unknown_names_do_not_build() -> None:
    with pytest.raises(
        ManifestInvalid, match=r"spec\.model\.name: 'lennet': is not a known model; did you mean lenet\?"
    ):
        build_model(model_spec("lennet"), data_spec(1, 28, 28), seed=0)
