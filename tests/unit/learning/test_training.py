from __future__ import annotations

import gc
import math
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from fedsilo.api.training import AugmentationSpec
from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning.models import Model, build_model, to_tree
from fedsilo.learning.training import (
    Examples,
    LocalTraining,
    batches,
    cross_entropy_loss,
    fit,
    learning_rate,
)
from tests.unit.learning.specs import data_spec, model_spec, training_spec

PLAN = LocalTraining(lr=0.1, batch_size=8, momentum=0.9, seed=1)


def make_model(*, batch_norm: bool = False, dropout: bool = False) -> Model:
    torch.manual_seed(0)
    middle: nn.Module = nn.BatchNorm1d(5) if batch_norm else nn.ReLU()
    return Model(nn.Sequential(nn.Linear(6, 5), middle, nn.Dropout(0.5 if dropout else 0.0)), nn.Linear(5, 4))


def make_examples(n: int = 20) -> Examples:
    random = np.random.default_rng(0)
    return Examples.from_arrays(random.normal(size=(n, 6)).astype("f4"), random.integers(0, 4, n), "cpu")


def trained_bytes(plan: LocalTraining, model: Model | None = None, n: int = 20) -> bytes:
    model = model or make_model()
    fit(model, make_examples(n), plan)
    return b"".join(array.tobytes() for array in to_tree(model).values())


class TestExamples:
    def test_bytes_are_scaled_when_a_batch_is_taken(self) -> None:
        pixels = np.arange(0, 240, dtype=np.uint8).reshape(10, 1, 4, 6)
        pixels.flags.writeable = False
        examples = Examples.from_arrays(pixels[::-1], np.arange(10, dtype=np.int16), "cpu")
        features, labels = examples.batch(torch.tensor([9, 2]))
        assert examples.features.dtype == torch.uint8
        assert features.dtype == torch.float32
        assert torch.equal(features, torch.tensor(pixels[[0, 7]] / np.float32(255)))
        assert labels.tolist() == [9, 2]
        assert labels.dtype == torch.int64
        assert len(examples) == 10

    @pytest.mark.parametrize(
        ("features", "labels", "message"),
        [
            (np.zeros((3, 2)), np.zeros(3, int), "features: dtype float64: convert"),
            (np.zeros((3, 2), "f4"), np.zeros(3), "labels: dtype float64: convert"),
            (np.zeros((3, 2), "f4"), np.zeros(2, int), r"features \(3, 2\), labels \(2,\)"),
            (np.zeros(3, "f4"), np.zeros(3, int), r"features \(3,\)"),
            (np.zeros((3, 2), "f4"), np.zeros((3, 1), int), r"labels \(3, 1\)"),
        ],
    )
    def test_faults(self, features: np.ndarray, labels: np.ndarray, message: str) -> None:
        with pytest.raises(DataInvalid, match=message):
            Examples.from_arrays(features, labels, "cpu")


class TestBatches:
    @given(st.integers(1, 40), st.integers(1, 12), st.booleans(), st.booleans(), st.booleans())
    def test_a_pass_uses_each_example_at_most_once(
        self, n: int, size: int, shuffle: bool, drop_last: bool, skip_single: bool
    ) -> None:
        left_out = (drop_last and n > size and n % size) or (skip_single and n % size == 1)
        used = n - n % size if left_out else n
        per_pass = math.ceil(used / size)
        stream = list(islice(batches(n, size, 3, shuffle, drop_last, skip_single=skip_single), 2 * per_pass))
        for taken in (stream[:per_pass], stream[per_pass:]):
            assert all(len(batch) == size for batch in taken[:-1])
            indices = [int(i) for batch in taken for i in batch]
            assert len(indices) == len(set(indices)) == used
            assert set(indices) <= set(range(n))
            assert shuffle or indices == list(range(used))

    def test_every_pass_has_its_own_order(self) -> None:
        first, second = islice(batches(50, 50, 1), 2)
        assert not torch.equal(first, second)
        assert torch.equal(first, next(batches(50, 50, 1)))
        assert not torch.equal(first, next(batches(50, 50, 2)))


class TestLearningRate:
    def rates(self, **fields: object) -> list[float]:
        training = training_spec(rounds=4, optimizer={"learningRate": 0.8}, **fields)
        return [learning_rate(training, round, 4) for round in (1, 2, 3, 4)]

    def test_schedules(self) -> None:
        assert self.rates() == [0.8] * 4
        assert self.rates(schedule="exponential", decay=0.5) == pytest.approx([0.8, 0.4, 0.2, 0.1])
        half = 0.4 * math.sqrt(0.5)
        assert self.rates(schedule="cosine") == pytest.approx([0.8, 0.4 + half, 0.4, 0.4 - half])

    def test_warm_up_multiplies(self) -> None:
        assert self.rates(warmupRounds=2) == pytest.approx([0.4, 0.8, 0.8, 0.8])
        assert self.rates(warmupRounds=4, schedule="exponential", decay=0.5) == pytest.approx(
            [0.2, 0.2, 0.15, 0.1]
        )

    def test_the_plan_of_a_round(self) -> None:
        training = training_spec(
            localEpochs=3, batchSize=7, gradientClip=2.5, minSteps=4, precision="bfloat16", warmupRounds=2,
            augmentation={"flip": True}, optimizer={"learningRate": 0.2, "momentum": 0.5, "weightDecay": 0.01},
        )  # fmt: skip
        assert LocalTraining.of(training, round=1, rounds=9, seed=5) == LocalTraining(
            lr=0.1, epochs=3, batch_size=7, momentum=0.5, weight_decay=0.01, gradient_clip=2.5, min_steps=4,
            precision="bfloat16", augmentation=AugmentationSpec(flip=True), seed=5,
        )  # fmt: skip

    def test_the_plan_of_so_many_steps(self) -> None:
        plan = LocalTraining.of(training_spec(localSteps=50), round=1, rounds=9, seed=5)
        assert (plan.epochs, plan.min_steps, plan.max_steps) == (1, 50, 50)

    @pytest.mark.parametrize("field", ["localEpochs", "minSteps"])
    def test_steps_and_what_else_says_how_many_are_refused(self, field: str) -> None:
        assert training_spec(**{"localSteps": 50, field: 1}).local_steps == 50  # as a cluster fills it in
        remedy = rf"which says the number of steps \(50\); remove {field} or localSteps"
        with pytest.raises(ValidationError, match=remedy):
            training_spec(**{"localSteps": 50, field: 2})


class TestFit:
    def test_one_step_is_the_formula(self) -> None:
        model, examples = make_model(), make_examples()
        before = [p.detach().clone() for p in model.parameters()]
        cross_entropy_loss(model, examples.features, examples.labels).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        fit(model, examples, LocalTraining(lr=0.3, batch_size=20, weight_decay=0.01, shuffle=False))
        for parameter, start, gradient in zip(model.parameters(), before, gradients, strict=True):
            assert torch.allclose(parameter, start - 0.3 * (gradient + 0.01 * start), atol=1e-6)

    def test_same_seed_same_bytes(self) -> None:
        assert trained_bytes(PLAN) == trained_bytes(PLAN)
        assert trained_bytes(PLAN) != trained_bytes(replace(PLAN, seed=2))

    def test_dropout_draws_from_the_plan_and_leaves_the_global_generator(self) -> None:
        plan = replace(PLAN, shuffle=False)
        model = make_model(dropout=True)
        before = torch.get_rng_state()
        first = trained_bytes(plan, model)
        assert torch.equal(torch.get_rng_state(), before)
        assert trained_bytes(plan, make_model(dropout=True)) == first
        assert trained_bytes(replace(plan, seed=9), make_model(dropout=True)) != first

    def test_momentum_starts_empty_in_every_call(self) -> None:
        twice = make_model()
        trained_bytes(replace(PLAN, shuffle=False), twice)
        assert trained_bytes(replace(PLAN, shuffle=False), twice) != trained_bytes(
            replace(PLAN, shuffle=False, epochs=2)
        )

    @pytest.mark.parametrize(
        ("changes", "steps"),
        [
            ({}, 3),
            ({"epochs": 4}, 12),
            ({"min_steps": 7}, 7),
            ({"min_steps": 2}, 3),
            ({"max_steps": 2}, 2),
            ({"drop_last": True}, 2),
            ({"drop_last": True, "batch_size": 30}, 1),
        ],
    )
    def test_steps(self, changes: dict[str, Any], steps: int) -> None:
        seen: list[int] = []

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            seen.append(len(y))
            return cross_entropy_loss(model, x, y)

        report = fit(make_model(), make_examples(), replace(PLAN, **changes), loss=loss)
        assert (report.steps, len(seen), report.examples) == (steps, steps, 20)

    @pytest.mark.parametrize("steps", [1, 2, 3, 7])
    def test_exactly_so_many_local_steps_over_passes_of_their_own_order(self, steps: int) -> None:
        seen: list[list[float]] = []

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            seen.append(x[:, 0].tolist())
            return cross_entropy_loss(model, x, y)

        examples = make_examples()
        training = training_spec(localSteps=steps, batchSize=8)
        plan = LocalTraining.of(training, round=1, rounds=1, seed=3)
        assert fit(make_model(), examples, plan, loss=loss).steps == steps == len(seen)
        order = islice(batches(20, 8, 3), steps)
        assert seen == [examples.features[index][:, 0].tolist() for index in order]

    def test_loss_is_the_mean_over_samples_of_the_last_pass(self) -> None:
        seen: list[tuple[int, float]] = []

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            value = cross_entropy_loss(model, x, y)
            seen.append((len(y), value.item()))
            return value

        report = fit(make_model(), make_examples(), replace(PLAN, epochs=2), loss=loss)
        assert [n for n, _ in seen] == [8, 8, 4] * 2
        assert report.loss == pytest.approx(sum(n * value for n, value in seen[3:]) / 20)

    def test_gradient_is_clipped_over_all_tensors(self) -> None:
        model = make_model()
        starts = [p.detach().clone() for p in model.parameters()]
        fit(model, make_examples(), LocalTraining(lr=1.0, batch_size=20, gradient_clip=1e-3))
        moved = torch.cat([(p - s).flatten() for p, s in zip(model.parameters(), starts, strict=True)])
        assert moved.norm().item() == pytest.approx(1e-3, rel=1e-3)

    def test_correction_comes_before_clip_and_momentum(self) -> None:
        def double_gradients(model: nn.Module) -> None:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(2)

        def double_loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            return 2 * cross_entropy_loss(model, x, y)

        corrected, scaled = make_model(), make_model()
        plan = replace(PLAN, gradient_clip=0.5, epochs=3)
        fit(corrected, make_examples(), plan, correct=double_gradients)
        fit(scaled, make_examples(), plan, loss=double_loss)
        for name, array in to_tree(corrected).items():
            assert np.allclose(array, to_tree(scaled)[name], atol=1e-6), name

    def test_each_correction_sees_the_gradient_of_one_batch(self) -> None:
        seen: list[Tensor] = []

        def look(model: nn.Module) -> None:
            gradient = model.get_parameter("encoder.0.weight").grad
            assert gradient is not None
            seen.append(gradient.clone())

        model = make_model()
        plan = replace(PLAN, lr=0.0, batch_size=20, shuffle=False, epochs=3)
        fit(model, make_examples(), plan, correct=look, parameters=model.classifier.parameters())
        assert torch.equal(seen[0], seen[2])

    def test_what_comes_after_a_step_passes_momentum_and_clip_by(self) -> None:
        def push(model: nn.Module) -> None:
            with torch.no_grad():
                model.get_parameter("classifier.bias").add_(0.25)

        model = make_model()
        before = to_tree(model)["classifier.bias"].copy()
        plan = replace(PLAN, lr=0.0, gradient_clip=1e-6, momentum=0.9, epochs=3)
        report = fit(model, make_examples(), plan, after_step=push)
        assert np.allclose(to_tree(model)["classifier.bias"], before + 0.25 * report.steps)

    def test_only_the_given_parameters_learn(self) -> None:
        model = make_model()
        before = {name: array.copy() for name, array in to_tree(model).items()}
        extra = nn.Parameter(torch.ones(()))

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy_loss(model, x * extra, y)

        fit(model, make_examples(), PLAN, loss=loss, parameters=[*model.classifier.parameters(), extra])
        after = to_tree(model)
        assert np.array_equal(before["encoder.0.weight"], after["encoder.0.weight"])
        assert not np.array_equal(before["classifier.weight"], after["classifier.weight"])
        assert extra.item() != 1
        assert all(parameter.grad is None for parameter in (*model.parameters(), extra))

    def test_batch_norm_skips_a_single_last_sample(self) -> None:
        assert fit(make_model(batch_norm=True), make_examples(17), PLAN).steps == 2
        assert fit(make_model(), make_examples(17), PLAN).steps == 3
        with pytest.raises(
            DataInvalid, match=r"examples: 1 in batches of 8.*BatchNorm .*: give this silo 2 training"
        ):
            fit(make_model(batch_norm=True), make_examples(1), PLAN)
        with pytest.raises(DataInvalid, match=r"examples: 9 in batches of 1.*BatchNorm needs at least 2"):
            fit(make_model(batch_norm=True), make_examples(9), replace(PLAN, batch_size=1))

    def test_no_examples(self) -> None:
        with pytest.raises(DataInvalid, match=r"examples: 0 .*give this silo training data"):
            fit(make_model(), make_examples(0), PLAN)
        with pytest.raises(MethodError, match="steps: 0"):
            fit(make_model(), make_examples(), replace(PLAN, max_steps=0))

    def test_divergence_names_step_and_remedy(self) -> None:
        def breaks(model: Model, x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy_loss(model, x, y) * (math.nan if len(y) == 4 else 1.0)

        with pytest.raises(MethodError, match=r"step 3: loss nan: training diverged at .* 0\.1; lower"):
            fit(make_model(), make_examples(), PLAN, loss=breaks)
        with pytest.raises(MethodError, match=r"step 1: tensor 'encoder\.0\.weight' is not finite"):
            fit(make_model(), make_examples(), replace(PLAN, lr=1e38, weight_decay=1e38, max_steps=1))

    def test_bfloat16_learns_and_keeps_float32_weights(self) -> None:
        exact, rounded = make_model(), make_model()
        fit(exact, make_examples(), replace(PLAN, epochs=5))
        report = fit(rounded, make_examples(), replace(PLAN, epochs=5, precision="bfloat16"))
        difference = (exact.classifier.weight - rounded.classifier.weight).abs().max()
        assert rounded.classifier.weight.dtype == torch.float32
        assert 0 < difference < 0.05
        assert report.loss < math.log(4)

    def test_an_image_network_learns(self) -> None:
        model = build_model(model_spec("lenet", padding=2), data_spec(1, 8, 8, classes=2), seed=0)
        labels = np.arange(40) % 2
        images = np.zeros((40, 1, 8, 8), np.uint8)
        images[labels == 1, :, 4:] = 255
        report = fit(model, Examples.from_arrays(images, labels, "cpu"), replace(PLAN, epochs=20))
        assert report.loss < 0.1


def test_no_tensor_is_kept_for_each_step() -> None:
    """Small ones that live as long as a pass would keep apart the memory of the batches between them."""
    alive: list[int] = []
    steps: list[int] = []

    def count(model: nn.Module) -> None:
        steps.append(1)
        if len(steps) in (10, 45):
            gc.collect()
            alive.append(sum(type(found) is Tensor for found in gc.get_objects()))

    fit(make_model(), make_examples(400), PLAN, after_step=count)
    assert len(steps) == 50
    assert alive[1] <= alive[0]
