"""Figures as JSON can state them, which has neither NaN nor infinity (RFC 8259, section 6), and as people see them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAIN_METRICS = ("accuracy", "mae", "loss")
"""What stands for a job that reports no figure of its main metric: the first of these that it has."""

SMALLER_IS_BETTER = frozenset(("loss", "mae", "rmse", "perplexity", "calibration_error"))

_SHARE = re.compile("accuracy|^(recall|precision|f1|dice|iou|auroc|average_precision|calibration_error)(_|$)")


def main_score(status: Mapping[str, Any]) -> tuple[str, float] | None:
    """Name and value of the one score that stands for a job in tables; None where it has none yet.

    :param status: of the job, or what a run ended with: its `metrics`, and `score`, which names the main one.
    """
    metrics = status.get("metrics") or {}
    return first_score(metrics, (status.get("score") or "").partition("=")[0])


def main_name(status: Mapping[str, Any]) -> str | None:
    """Name of that score; None where there is none yet."""
    found = main_score(status)
    return None if found is None else found[0]


def first_score(metrics: Mapping[str, float], main: str | None) -> tuple[str, float] | None:
    """Name and value of the main metric, or of what stands for it where it has no value."""
    name = next((name for name in (main, *MAIN_METRICS, *metrics) if name in metrics), None)
    return None if name is None else (name, metrics[name])


def main_first(names: Iterable[str], main: str | None) -> list[str]:
    """The names in their order, but the main metric's first."""
    return sorted(names, key=lambda name: name != main)


def score_text(metric: str, value: float) -> str:
    """A score for people: a share in per cent, anything else with four digits."""
    return f"{value:.1%}" if _SHARE.search(metric) and 0 <= value <= 1 else f"{value:.4g}"


def finite_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures less those that are NaN or infinite, in maps and lists of them too."""
    return {name: _finite_part(value) for name, value in figures.items() if is_finite(value)}


def is_finite(value: object) -> bool:
    """Whether it is anything but NaN or infinity."""
    return not isinstance(value, float) or math.isfinite(value)


def _finite_part(value: Any) -> Any:
    if isinstance(value, Mapping):
        return finite_figures(value)
    if isinstance(value, list | tuple):
        return [_finite_part(item) for item in value if is_finite(item)]
    return value
