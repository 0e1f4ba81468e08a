"""A silo's change of the model is clipped as one vector, and gets noise of the deviation that its part has."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.errors import PolicyRefused
from fedsilo.methods.state import Tree
from fedsilo.privacy import clipping
from fedsilo.privacy.clipping import clip_factor
from fedsilo.transforms.update_noise.clipped import noise_seed_domain, privatized_pieces, require_change
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy

BASE: Tree = {
    "w": np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30),
    "b": np.full(3, 1e3, np.float32),
    "none": np.zeros((0, 4), np.float32),
}
NOISELESS_PRIVACY = UpdatePrivacy(1e-12, 2.0, 4, 1)
"""With next to no noise, so that clipping can be seen."""


def shifted_model(by: float) -> Tree:
    return {name: array + np.float32(by) for name, array in BASE.items()}


def released_model(model: Tree, privacy: UpdatePrivacy, seed: int = 0) -> Tree:
    found: dict[str, list[np.ndarray]] = {name: [] for name in BASE}
    for name, piece in privatized_pieces(list(BASE), model, BASE, privacy, np.random.default_rng(seed)):
        found[name].append(piece)
    empty = np.empty(0, np.float32)
    return {name: np.concatenate([empty, *found[name]]).reshape(BASE[name].shape) for name in BASE}


def change(tree: Tree) -> np.ndarray:
    return np.concatenate([(tree[name].astype(np.float64) - BASE[name]).ravel() for name in BASE])


@pytest.mark.parametrize("by", [1.0, 1e6, -1e20])
def test_a_huge_change_is_clipped_over_all_tensors_together(by: float) -> None:
    found = change(released_model(shifted_model(by), NOISELESS_PRIVACY))
    assert np.linalg.norm(found) == pytest.approx(2.0, rel=1e-4)
    np.testing.assert_allclose(found, np.sign(by) * 2.0 / np.sqrt(603), rtol=1e-3)


def test_a_small_change_stays_as_it_is() -> None:
    model = shifted_model(0.01)
    assert clip_factor([(model[name], BASE[name]) for name in BASE], 2.0) == 1
    for name, array in released_model(model, NOISELESS_PRIVACY).items():
        np.testing.assert_array_equal(array, model[name])
        assert (array.dtype, array.shape) == (BASE[name].dtype, BASE[name].shape)


def test_noise_has_the_deviation_of_its_part() -> None:
    """sigma C / sqrt(quorum), in every coordinate, around the clipped change."""
    privacy = UpdatePrivacy(3.0, 0.5, 9, 1)
    assert privacy.deviation == pytest.approx(0.5)
    runs = np.stack([change(released_model(shifted_model(10.0), privacy, seed)) for seed in range(60)])
    noise = runs - 0.5 / np.sqrt(603)
    assert noise.std() == pytest.approx(privacy.deviation, rel=0.02)
    assert abs(noise.mean()) < 4 * privacy.deviation / np.sqrt(noise.size)
    correlation = np.corrcoef(noise[:, :100].ravel(), noise[:, 100:200].ravel())[0, 1]
    assert abs(correlation) < 0.05


def test_the_parts_of_a_quorum_make_up_the_noise_of_the_sum() -> None:
    privacy = UpdatePrivacy(2.0, 1.0, 16, 1)
    parts = [
        [change(released_model(BASE, privacy, 100 * run + silo)) for silo in range(16)] for run in range(20)
    ]
    assert np.sum(parts, axis=1).std() == pytest.approx(2.0, rel=0.02)


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    privacy = UpdatePrivacy(1.0, 1.0, 1, 1)
    whole = released_model(shifted_model(0.001), privacy)
    monkeypatch.setattr(clipping, "PIECE_ITEMS", 7)
    for name, array in released_model(shifted_model(0.001), privacy).items():
        np.testing.assert_array_equal(array, whole[name])


def test_noise_is_for_one_reply_in_one_exchange() -> None:
    model = shifted_model(0.5)
    found = noise_seed_domain("train", 1, model, BASE)
    assert noise_seed_domain("train", 1, dict(reversed(model.items())), BASE) == found
    others = [("train", 2, model, BASE), ("tune", 1, model, BASE), ("train", 1, shifted_model(0.25), BASE)]
    others.append(("train", 1, model, shifted_model(0.1)))
    assert len({found, *(noise_seed_domain(*other) for other in others)}) == 5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_change_that_is_not_finite_is_refused(value: float) -> None:
    model = {**BASE, "b": np.array([0, value, 0], np.float32)}
    with pytest.raises(PolicyRefused, match="change of the model is not finite"):
        released_model(model, NOISELESS_PRIVACY)


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ({name: array for name, array in BASE.items() if name != "b"}, "block b: is not in the silo's reply"),
        ({**BASE, "more": np.ones(1, np.float32)}, "block more: is not in the task's model"),
        ({**BASE, "b": np.ones(4, np.float32)}, r"block b: float32 \(4,\) cannot be clipped"),
        ({**BASE, "b": np.ones(3, np.int64)}, "block b: int64 .* cannot be clipped"),
    ],
    ids=["missing", "more", "shape", "integers"],
)
def test_what_is_no_change_of_the_model_is_refused(model: Tree, fault: str) -> None:
    with pytest.raises(PolicyRefused, match=fault):
        require_change(model, BASE)


def test_integers_in_both_are_refused() -> None:
    tree = {"steps": np.array(3, np.int64)}
    with pytest.raises(PolicyRefused, match="use a network of floating-point tensors"):
        require_change(tree, tree)
