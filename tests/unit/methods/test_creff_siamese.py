"""DSA's six changes, each against a loop over pixels or a limit that needs no arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedsilo.methods.creff import siamese
from fedsilo.methods.creff.siamese import CHANGES, augmented_images, color, crop, cutout, flip, rotate, scale

IMAGES = torch.rand(3, 2, 8, 16, generator=torch.Generator().manual_seed(0))
MIDDLE = [0.5, 0.5, 0.5]


def test_each_change_is_drawn_about_as_often_and_the_same_seed_gives_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = [0] * len(CHANGES)

    def counting(number: int) -> Callable[..., torch.Tensor]:
        def change(images: torch.Tensor, draws: list[float]) -> torch.Tensor:
            counts[number] += 1
            assert len(draws) == 3 and all(0 <= draw < 1 for draw in draws)
            return images

        return change

    assert all(
        torch.equal(augmented_images(IMAGES, seed), augmented_images(IMAGES, seed)) for seed in range(20)
    )
    monkeypatch.setattr(siamese, "CHANGES", tuple(counting(number) for number in range(6)))
    for seed in range(600):
        augmented_images(IMAGES, seed)
    assert min(counts) > 60


def test_color_is_brightness_then_saturation_then_contrast() -> None:
    found = color(IMAGES, [0.9, 0.3, 0.8]).numpy()
    for image, changed in zip(IMAGES.numpy().astype(float), found, strict=True):
        brighter = image + 0.4
        grey = brighter.mean(axis=0)
        saturated = grey + (brighter - grey) * 0.6
        np.testing.assert_allclose(
            changed, saturated.mean() + (saturated - saturated.mean()) * 1.3, atol=1e-5
        )
    torch.testing.assert_close(color(IMAGES, MIDDLE), IMAGES)


@pytest.mark.parametrize(
    ("draws", "rows", "columns"), [([0, 0.999], -1, 2), ([0.999, 0], 1, -2), (MIDDLE, 0, 0)]
)
def test_crop_shifts_by_an_eighth_at_most_and_fills_with_zeros(
    draws: list[float], rows: int, columns: int
) -> None:
    found = crop(IMAGES, draws)
    for row in range(8):
        for column in range(16):
            y, x = row + rows, column + columns
            inside = 0 <= y < 8 and 0 <= x < 16
            expected = IMAGES[:, :, y, x] if inside else torch.zeros(3, 2)
            assert torch.equal(found[:, :, row, column], expected)


@pytest.mark.parametrize(
    ("draws", "rows", "columns"),
    [([0, 0], (0, 2), (0, 4)), (MIDDLE, (2, 6), (4, 12)), ([0.999, 0.999], (6, 8), (12, 16))],
)
def test_cutout_is_half_of_each_side_around_its_centre(
    draws: list[float], rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    expected = IMAGES.clone()
    expected[:, :, slice(*rows), slice(*columns)] = 0
    assert torch.equal(cutout(IMAGES, draws), expected)


def test_flip_mirrors_all_images_or_none() -> None:
    assert torch.equal(flip(IMAGES, [0.4]), IMAGES[:, :, :, list(range(15, -1, -1))])
    assert torch.equal(flip(IMAGES, [0.6]), IMAGES)


def sampled_images(matrix: np.ndarray) -> np.ndarray:
    """Bilinear, pixel by pixel, with zeros outside."""
    images, (height, width) = IMAGES.numpy().astype(float), IMAGES.shape[2:]
    found = np.zeros_like(images)
    for row in range(height):
        for column in range(width):
            centre = np.array([(2 * column + 1) / width - 1, (2 * row + 1) / height - 1])
            x, y = ((matrix @ centre + 1) * (width, height) - 1) / 2
            for near_y in (int(np.floor(y)), int(np.floor(y)) + 1):
                for near_x in (int(np.floor(x)), int(np.floor(x)) + 1):
                    if 0 <= near_y < height and 0 <= near_x < width:
                        share = (1 - abs(y - near_y)) * (1 - abs(x - near_x))
                        found[:, :, row, column] += share * images[:, :, near_y, near_x]
    return found


@pytest.mark.parametrize("draws", [[0.0, 1.0], [0.7, 0.2]])
def test_scale_takes_each_side_times_five_sixths_to_six_fifths(draws: list[float]) -> None:
    factors = [1 / 1.2 + draw * (1.2 - 1 / 1.2) for draw in draws]
    np.testing.assert_allclose(scale(IMAGES, draws).numpy(), sampled_images(np.diag(factors)), atol=1e-5)


@pytest.mark.parametrize("draw", [0.0, 0.5, 0.8])
def test_rotate_turns_by_fifteen_degrees_at_most(draw: float) -> None:
    angle = np.pi / 12 * (2 * draw - 1)
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    np.testing.assert_allclose(rotate(IMAGES, [draw]).numpy(), sampled_images(matrix), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 7)])
def test_small_and_odd_images_stay_finite_and_of_their_shape(shape: tuple[int, int]) -> None:
    images = torch.rand(1, 1, *shape)
    for seed in range(60):
        found = augmented_images(images, seed)
        assert found.shape == images.shape and found.isfinite().all()
