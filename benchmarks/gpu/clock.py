"""The time at which a device has done all that it was given."""

from __future__ import annotations

import time

import torch


def now(device: str) -> float:
    """Seconds of a clock that never goes back.

    :param device: `cuda`, which is waited for, or `cpu`.
    """
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()
