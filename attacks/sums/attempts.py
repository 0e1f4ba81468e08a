"""What a hostile aggregator tries against secure sums, and what each try shows of one silo.

In each, the aggregator is after the summand of the first silo. It knows everything that the others answer to a model of
its own making; what is left of a sum without that is compared with the silo's real summand.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attacks.sums.aggregator import AggregatorView, Plan, run_sum
from attacks.sums.guards import Guards, model_of
from fedsilo.methods.interface import EVALUATE
from fedsilo.secure_aggregation.parts import tensor_point
from fedsilo.wire import Tree

MODEL, CRAFTED_MODEL = model_of(1), model_of(2)


@dataclass(frozen=True)
class Finding:
    """What one try has shown of a silo.

    :ivar correlation: largest magnitude of the correlation between its summand's tensors and anything that the
        aggregator can compute.
    :ivar exact: whether its samples, all of its metrics or its confusion matrix came out to the last digit.
    :ivar refusals: what guards said, each once.
    """

    correlation: float
    exact: bool
    refusals: tuple[str, ...]


Attempt = Callable[[Guards], Coroutine[Any, Any, "Finding"]]


def changed_slightly(model: Tree) -> Tree:
    """The model with its first number changed in the last digit, which is another model by its digest."""
    first = next(iter(model))
    changed = {name: array.copy() for name, array in model.items()}
    changed[first].reshape(-1)[0] = np.nextafter(changed[first].reshape(-1)[0], np.float32(9))
    return changed


async def another_model(guards: Guards) -> Finding:
    """The first silo has the model, all others one whose answers the aggregator knows."""
    first, *others = guards.silos
    sent = {first: MODEL, **dict.fromkeys(others, CRAFTED_MODEL)}
    seen = await run_sum(guards, Plan(1, sent.__getitem__))
    return compare_candidates(
        guards, first, [total - known_sum(guards, others, CRAFTED_MODEL) for total in seen.sums()]
    )


async def other_settings(guards: Guards) -> Finding:
    """All have the model; settings of the others' tasks are what makes their answers known."""
    first, *others = guards.silos
    seen = await run_sum(
        guards, Plan(1, lambda _: MODEL, settings=lambda s: {} if s == first else {"work": 1})
    )
    return compare_candidates(
        guards, first, [total - known_sum(guards, others, MODEL) for total in seen.sums()]
    )


async def two_lists(guards: Guards) -> Finding:
    """One half is told that the first silo survived, the other half that it did not."""
    first = guards.silos[0]
    half = set(guards.silos[: (len(guards.silos) + 1) // 2])

    def survivors(silo: str, sent: Any) -> list[str]:
        return list(sent) if silo in half else [one for one in sent if one != first]

    seen = await run_sum(guards, Plan(1, lambda _: MODEL, survivors=survivors))
    return compare_candidates(guards, first, differences(seen))


async def claim_lone_survivor(guards: Guards) -> Finding:
    """All are told that the first silo alone has survived."""
    first = guards.silos[0]
    seen = await run_sum(guards, Plan(1, lambda _: MODEL, survivors=lambda *_: [first]))
    return compare_candidates(guards, first, seen.sums())


async def left_out(guards: Guards) -> Finding:
    """The model of round 1 is handed out again in round 2, to all but the first silo."""
    return await _sum_twice(guards, MODEL, "train")


async def nearly_left_out(guards: Guards) -> Finding:
    """A model that differs from the one before in one last digit is handed out to all but the first silo."""
    return await _sum_twice(guards, changed_slightly(MODEL), "train")


async def scored_twice(guards: Guards) -> Finding:
    """The scores of round 1 are asked for again in round 2, of all but the first silo."""
    return await _sum_twice(guards, MODEL, EVALUATE)


async def nearly_scored_twice(guards: Guards) -> Finding:
    """Scores of the same model but for a last digit, of all but the first silo."""
    return await _sum_twice(guards, changed_slightly(MODEL), EVALUATE)


async def under_another_name(guards: Guards) -> Finding:
    """The exchange is asked for again under other names of tasks, without the first silo."""
    first, *others = guards.silos
    whole = await run_sum(guards, Plan(1, lambda _: MODEL))
    again = await run_sum(guards, Plan(1, lambda _: MODEL, asked=others, task="r00001-again"))
    return compare_candidates(guards, first, differences(whole, again))


async def _sum_twice(guards: Guards, again: Tree, step: str) -> Finding:
    first, *others = guards.silos
    whole = await run_sum(guards, Plan(1, lambda _: MODEL, step))
    rest = await run_sum(guards, Plan(2, lambda _: again, step, asked=others))
    return compare_candidates(guards, first, differences(whole, rest), step)


ATTEMPTS: dict[str, Attempt] = {
    "another model for one silo": another_model,
    "other settings for one silo": other_settings,
    "two lists of survivors": two_lists,
    "one survivor": claim_lone_survivor,
    "the model again, without one silo": left_out,
    "nearly the model again, without one silo": nearly_left_out,
    "scores again, without one silo": scored_twice,
    "scores of nearly the model again, without one silo": nearly_scored_twice,
    "the exchange under another name, without one silo": under_another_name,
}
"""What is tried -> how."""


async def attempt_outcome(attempt: str, count: int, least: int | None) -> Finding:
    """The outcome of one try against so many new guards.

    :param least: `spec.participation.minSilos`; None for the default, all silos.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with Guards(Path(folder) / "job", count, least) as guards:
            return await ATTEMPTS[attempt](guards)


def known_sum(guards: Guards, silos: list[str], model: Tree) -> np.ndarray:
    """The sum of what these silos answer to a model, as whoever has made it can compute."""
    summands = [guards.vector(silo, "train", model) for silo in silos]
    return np.asarray(np.sum(summands, axis=0, dtype=np.uint64))


def differences(*sums: AggregatorView) -> list[np.ndarray]:
    """Every difference of two sums: one sum by itself is what the aggregator is meant to learn."""
    found = [total for seen in sums for total in seen.sums()]
    return [one - other for one in found for other in found if one is not other]


def compare_candidates(
    guards: Guards, silo: str, candidates: list[np.ndarray], step: str = "train"
) -> Finding:
    """What candidates for a silo's summand have to do with it.

    Correlations are of the numbers of tensors: of a model, samples times its change; of scores, the confusion matrix.
    """
    layout, summand = guards.layout(step), guards.vector(silo, step, MODEL)
    blocks = layout.contract.blocks
    numbers = sum(block.spec.size for block in blocks)
    head, point = len(summand) - numbers, tensor_point(layout.silos, blocks[0], layout.weights)
    truth = point.decode(summand[head:].copy())
    found = [_correlation(point.decode(one[head:].copy()), truth) for one in candidates]
    exact = any(bool((one[:head] == summand[:head]).all()) for one in candidates)
    refusals = sorted(map(_short_refusal, guards.refusals()))
    return Finding(max(found, default=0.0), exact, tuple(refusals))


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    if not one.std() or not other.std():
        return 0.0
    return float(abs(np.corrcoef(one, other)[0, 1]))


def _short_refusal(refusal: str) -> str:
    """What a guard says, without tasks, digests and what follows from it."""
    said = refusal.partition("; nothing is")[0]
    said = re.sub(
        r"secure aggregation: |malformed: |,? ?update [0-9a-f]+| [0-9a-f]{12}\b|^task [^ :]+:? ", "", said
    )
    return re.sub(r"r\d{5}-[\w.-]+", "T", said)
