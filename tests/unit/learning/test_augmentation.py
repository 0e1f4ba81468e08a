"""What a crop, a flip and a rotation make of images, against plain constructions of the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.api.training import AugmentationSpec
from fedsilo.learning.augmentation import Augmentation, _rotated_images
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_model, to_tree
from fedsilo.learning.training import LocalTraining, fit

FULL_AUGMENTATION = AugmentationSpec(crop=2, border="reflect", flip=True, rotation=15)


def images(count: int = 40, height: int = 6, width: int = 9) -> Tensor:
    """No two pixels are alike."""
    return torch.randn(count, 2, height, width, generator=torch.Generator().manual_seed(1))


def augmented_batch(batch: Tensor, seed: int = 0, **fields: Any) -> Tensor:
    return Augmentation(AugmentationSpec.model_validate(fields), seed)(batch)


def crop_offset(image: Tensor, crop: Tensor, border: int, mode: str) -> tuple[int, int]:
    """The one place at which the crop lies in the image with its border."""
    bordered = functional.pad(image[None], [border] * 4, mode=mode)[0]
    height, width = image.shape[1:]
    side = range(2 * border + 1)
    found = [(y, x) for y in side for x in side if bordered[:, y : y + height, x : x + width].equal(crop)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("border", "mode"), [("zero", "constant"), ("reflect", "reflect")])
def test_a_crop_is_a_part_of_the_image_with_its_border(border: str, mode: str) -> None:
    batch = images(200)
    crops = augmented_batch(batch, crop=2, border=border)
    places = [crop_offset(image, crop, 2, mode) for image, crop in zip(batch, crops, strict=True)]
    assert set(places) == {(y, x) for y in range(5) for x in range(5)}


def test_a_flip_mirrors_about_half_of_the_images() -> None:
    batch = images(400)
    flipped = augmented_batch(batch, flip=True)
    mirrored = [not image.equal(before) for before, image in zip(batch, flipped, strict=True)]
    for before, image, turned in zip(batch, flipped, mirrored, strict=True):
        assert image.equal(before.flip(2) if turned else before)
    assert 160 < sum(mirrored) < 240


def test_a_batch_as_a_whole_draws_once() -> None:
    one = images(1).expand(20, -1, -1, -1)
    results = [augmented_batch(one, seed, crop=2, flip=True, rotation=30, per="batch") for seed in range(20)]
    assert all(image.equal(result[0]) for result in results for image in result)
    assert len({tuple(result[0].flatten().tolist()) for result in results}) > 10


@pytest.mark.parametrize(
    ("degrees", "plain"), [(90, lambda x: x.rot90(1, (2, 3))), (180, lambda x: x.flip((2, 3)))]
)
def test_quarter_and_half_turns(degrees: int, plain: Any) -> None:
    square = images(3, 8, 8)
    turned = _rotated_images(square, torch.full((3,), math.radians(degrees)))
    assert torch.allclose(turned, plain(square), atol=1e-5)


def test_a_rotation_keeps_lengths_in_images_that_are_not_square() -> None:
    image = torch.zeros(1, 1, 21, 41)
    image[0, 0, 10, 20 - 8 : 20 + 9] = 1.0
    upright = _rotated_images(image, torch.tensor([math.pi / 2]))[0, 0]
    assert torch.allclose(upright.sum(), image.sum(), atol=1e-3)
    assert torch.allclose(upright[2:19, 20], torch.ones(17), atol=1e-4)


def test_angles_stay_within_their_limit_and_go_both_ways() -> None:
    image = torch.zeros(500, 1, 41, 41)
    image[:, 0, 20, 40] = 1.0  # at three o'clock, 20 pixels from the centre
    rows = augmented_batch(image, rotation=15).sum(dim=(1, 3)) @ torch.arange(41.0)
    heights = rows / augmented_batch(image, rotation=15).sum(dim=(1, 2, 3)) - 20
    furthest = 20 * math.sin(math.radians(15)) + 1
    assert -furthest < heights.min() < -3
    assert 3 < heights.max() < furthest


def test_the_same_seed_draws_the_same_and_the_batch_stays() -> None:
    batch = images()
    before = batch.clone()
    first, again = Augmentation(FULL_AUGMENTATION, 3), Augmentation(FULL_AUGMENTATION, 3)
    assert first(batch).equal(again(batch))
    assert not first(batch).equal(Augmentation(FULL_AUGMENTATION, 3)(batch)), "the next batch draws anew"
    assert not Augmentation(FULL_AUGMENTATION, 4)(batch).equal(Augmentation(FULL_AUGMENTATION, 3)(batch))
    assert batch.equal(before)


def test_nothing_asked_for_changes_nothing() -> None:
    batch = images()
    assert Augmentation(AugmentationSpec(), 0)(batch).equal(batch)


def test_local_training_learns_from_the_changed_images() -> None:
    labels = torch.arange(20) % 3
    examples = Examples(images(20, 16, 16), labels)
    data = DataSpec.model_validate({"dataset": "images", "classes": 3, "inputShape": [2, 16, 16]})

    def trained_tensors(augmentation: AugmentationSpec | None) -> list[bytes]:
        model = build_model(ModelSpec(name="lenet"), data, seed=0)
        fit(model, examples, LocalTraining(lr=0.1, batch_size=8, augmentation=augmentation))
        return [array.tobytes() for array in to_tree(model).values()]

    flip = AugmentationSpec(flip=True)
    assert trained_tensors(flip) == trained_tensors(flip)
    assert trained_tensors(flip) != trained_tensors(None)
    assert trained_tensors(AugmentationSpec()) == trained_tensors(None)
