"""A silo's training beside a plain PyTorch loop by turns, in every precision, from memory and from a file."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from benchmarks.gpu.cases import Case, Figures, Setting
from benchmarks.training import compare

BATCH_EXAMPLES = 64
NETWORKS = ("lenet", "resnet20", "transformer")
PRECISIONS = ("float32", "bfloat16", "float16")


def cases(setting: Setting) -> Iterator[Case]:
    """Networks in every precision; from a file once each, since what is read is the same."""
    networks = NETWORKS[:1] if setting.size == "reduced" else NETWORKS
    for network in networks:
        for precision in PRECISIONS:
            yield Case(f"{network}, {precision}", partial(speed_figures, setting, network, precision, False))
    for network in networks:
        for precision in PRECISIONS:
            name = f"{network}, {precision}, read batch by batch"
            yield Case(name, partial(speed_figures, setting, network, precision, True))


def speed_figures(setting: Setting, network: str, precision: str, stored: bool) -> Figures:
    """Steps of both, and the ratio of their speeds."""
    pairs, seconds, steps = int(setting.of(3, 1, 1)), setting.of(0.3, 0.2, 0), int(setting.of(0, 0, 2))
    batch = int(setting.of(BATCH_EXAMPLES, BATCH_EXAMPLES, 4))
    found = compare(network, setting.device, precision, batch, pairs, seconds, steps, stored)
    loop, ours = (statistics.median(pair[side].seconds for pair in found.pairs) for side in (0, 1))
    return {
        "steps": found.steps,
        "loop, ms/step": 1000 * loop / found.steps,
        "fedsilo, ms/step": 1000 * ours / found.steps,
        "samples/s": batch * found.steps / ours,
        "ratio": found.ratio,
    }
