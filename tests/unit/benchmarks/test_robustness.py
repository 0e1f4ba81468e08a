"""The attacks of `benchmarks.robustness` do what they say, and a rule stops the coarsest of them."""

from __future__ import annotations

import numpy as np

from benchmarks.robustness.__main__ import tables
from benchmarks.robustness.federation import (
    HOSTILE_SILOS,
    SILOS,
    TRAINING,
    Cell,
    HostileBackend,
    load,
    run,
    with_trigger,
)


def test_hostile_silos_flip_labels_and_hide_a_trigger() -> None:
    images, labels = load("0", "none", 0.5, 1)
    assert (load("0", "label-flip", 0.5, 1)[1] == 9 - labels).all()
    changed, classes = load("1", "backdoor", 0.5, 1)
    plain = load("1", "none", 0.5, 1)[0]
    assert (changed[::2] == with_trigger(plain[::2])).all()
    assert (classes[::2] == 0).all()
    assert (
        load(str(HOSTILE_SILOS), "backdoor", 0.5, 1)[0] == load(str(HOSTILE_SILOS), "none", 0.5, 1)[0]
    ).all()
    assert sum(len(load(str(place), "none", 0.5, 1)[1]) for place in range(SILOS)) == TRAINING
    assert images.shape[1:] == (1, 8, 8)


def test_a_change_is_multiplied() -> None:
    sent, model = {"w": np.array([1, 2], np.float32)}, {"w": np.array([2, 2], np.float32)}
    assert HostileBackend(None, -1)._scaled_change(sent, model)["w"].tolist() == [0, 2]  # type: ignore[arg-type]


def test_flipped_signs_ruin_the_mean_and_not_the_median() -> None:
    ruined, saved = (run(Cell("sign-flip", rule, 100.0, 1), 4) for rule in ("mean", "median"))
    assert saved.accuracy > ruined.accuracy
    assert ruined.kept_hostile is None
    assert saved.kept_hostile is not None
    assert saved.kept_others is not None
    assert saved.kept_hostile < saved.kept_others


def test_the_tables_have_every_rule() -> None:
    line = {"attack": "none", "rule": "krum", "beta": 0.5, "accuracy": 0.9, "backdoor": 0.1}
    text = tables([line | {"kept_hostile": 0.0, "kept_others": 0.125}])
    assert "| krum | 90.0 | – | – | – | – |" in text
    assert text.count("| geometric-median |") == 8
