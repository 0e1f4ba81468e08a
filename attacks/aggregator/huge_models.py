"""Models of which every number is 3e38, with 2^53 samples each, by two silos of five in a job with
`rule: {name: geometric-median}`, whose aggregator lives beside the one that is measured.

By: two silos of a job with their own keys.

Must: accepted, for they are numbers; the next model is no farther from the honest silos' models than the rule promises,
`kept` says how little counted, and the status remains JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError
from fedsilo.validation import registry_faults
from tests.integration.service.client import FetchedTask, SiloClient
from tests.integration.service.site import Site, federation, wait_until

RUNS_ONCE = True

HONEST_SILOS, HOSTILE_SILOS = ("north", "east", "south"), ("west", "centre")
AGGREGATION = {"weights": "uniform", "rule": {"name": "geometric-median"}}
FARTHEST_DISTANCE = 2 * len(HONEST_SILOS) / (len(HONEST_SILOS) - len(HOSTILE_SILOS))
"""How far the model may be from the honest silos' mean, over the largest distance of one of theirs to it."""


def attack(target: LiveAggregator) -> None:
    names = HONEST_SILOS + HOSTILE_SILOS
    job = federation(rounds=3, quorum=len(names), names=names, aggregation=AGGREGATION)
    if faults := registry_faults(job):
        raise NotRefusedError(f"the job itself is refused: {faults[0]}")
    site = Site(target.site.workdir.root.parent / "ruled", job)
    process = site.aggregator()
    try:
        clients = [SiloClient(site, silo) for silo in site.silos]
        given = clients[0].fetch_task()
        models = [_trained_model(given, number) for number, _ in enumerate(HONEST_SILOS)]
        huge = {name: np.full(array.shape, 3e38, array.dtype) for name, array in given.tree.items()}
        for client, model in zip(clients, [*models, huge, huge], strict=True):
            _send(client, model, samples=10 if model is not huge else 2**53)
        _expect_near(models, clients[0].fetch_task(given.task.task).tree)
        target.note("bounded")
        _expect_told(site)
    finally:
        process.kill()


def _trained_model(given: FetchedTask, number: int) -> dict[str, np.ndarray]:
    """An honest silo's model: each number is a little away from what was sent."""
    rng = np.random.default_rng(number)
    return {
        name: (array + rng.uniform(-0.01, 0.01, array.shape)).astype(array.dtype)
        for name, array in given.tree.items()
    }


def _send(silo: SiloClient, model: Mapping[str, np.ndarray], **changes: Any) -> None:
    given = silo.fetch_task()
    blocks = [(block, model[block.name]) for block in given.contract.blocks]
    answer = silo.patch(given.task.task, silo.update(given, blocks=blocks, **changes))
    if answer.status != 201:
        raise NotRefusedError(f"an update of finite numbers was answered {answer.status} {answer.code}")


def _expect_near(honest: Sequence[Mapping[str, np.ndarray]], next_model: Mapping[str, np.ndarray]) -> None:
    """The model is as near to the honest silos' as docs/robust-aggregation.md promises.

    :raises NotRefusedError: when it is not.
    """
    models = np.stack([_flat_vector(model) for model in honest])
    mean = models.mean(axis=0)
    limit = FARTHEST_DISTANCE * float(np.linalg.norm(models - mean, axis=1).max())
    distance = float(np.linalg.norm(_flat_vector(next_model) - mean))
    if not distance <= limit:
        raise NotRefusedError(f"the model is {distance:g} away from the honest ones, more than {limit:g}")


def _expect_told(site: Site) -> None:
    """The status is JSON without infinity, and says that next to nothing counted of the hostile silos' models.

    :raises NotRefusedError: when it does not.
    """
    kept = wait_until(lambda: _kept_shares(site), "the status of the first round")
    json.dumps(site.status(), allow_nan=False)
    if max(kept[name] for name in HOSTILE_SILOS) > 1e-6 or min(kept[name] for name in HONEST_SILOS) < 0.1:
        raise NotRefusedError(f"the status says that this counted of the models: {kept}")


def _kept_shares(site: Site) -> dict[str, float]:
    """How much of each silo's last model counted, from 0 to 1, by name; empty before a round is complete."""
    return {silo["name"]: silo["kept"] for silo in site.status()["silos"] if silo.get("kept") is not None}


def _flat_vector(tree: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tree[name].ravel() for name in sorted(tree)]).astype(np.float64)
