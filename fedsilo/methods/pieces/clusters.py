"""Clusters of silos with a model each: formed by k-means on label distributions, trained by FedAvg inside each.

State: trees `cluster/0` to `cluster/K-1`; values `clusters` (K) and `member` (silo -> number of its cluster). Clusters
are numbered by their first silo and keep their numbers, since the order of concatenation is theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from fedsilo.methods.interface import MethodConfig, ServerContext, Updates
from fedsilo.methods.state import State

log = logging.getLogger("fedsilo.methods")

CROWDING = 1.2
"""A capped cluster holds at most floor(1.2 N / K) silos, released code of FedConcat."""


class ClusterConfig(MethodConfig):
    """How many clusters there are, and how large they may be."""

    clusters: int = Field(
        default=5, ge=1, le=1000, description="Number of clusters K [released code, run.sh]."
    )
    choice: Literal["fixed", "elbow"] = Field(
        default="fixed", description="elbow: K where the inertia curve bends, at most `clusters` [paper]."
    )
    size_capped: bool = Field(
        default=False,
        description="At most floor(1.2 N / K) silos in a cluster [released code, for CIFAR-100 and Tiny-ImageNet].",
    )


def cluster_silos(
    job: ServerContext, config: ClusterConfig, rows: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """Silo -> number of its cluster, by k-means on the label distributions.

    :param rows: silo -> (C,) label distribution.
    """
    from fedsilo.learning.clustering import cluster, elbow

    matrix, seed = np.stack(list(rows.values())), job.seed("clusters")
    most = min(config.clusters, len(rows))
    number = elbow(matrix, most, seed) if config.choice == "elbow" else most
    cap = int(CROWDING * len(rows) / number) if config.size_capped else None
    labels = cluster(matrix, number, seed, cap)
    if (formed := len(set(labels))) < number:
        log.warning("clusters: %d instead of %d: no more label distributions differ", formed, number)
    return {silo: int(label) for silo, label in zip(rows, labels, strict=True)}


def begin(state: State, member: Mapping[str, int]) -> State:
    """Every cluster starts from the tree `initial`, which is dropped."""
    clusters, initial = max(member.values()) + 1, state.trees["initial"]
    trees = {f"cluster/{number}": initial for number in range(clusters)}
    return State(trees, {"clusters": clusters, "member": dict(member)})


def tree_of(state: State, silo: str) -> str:
    """Tree of the silo's cluster; a silo that was absent when clusters were formed joins the largest."""
    member = state.values["member"]
    numbers = list(member.values())
    largest = max(sorted(set(numbers)), key=numbers.count)
    return f"cluster/{member.get(silo, largest)}"


def average_inside(job: ServerContext, state: State, updates: Updates) -> State:
    """FedAvg inside each cluster; one without an answer keeps its model."""
    for tree in trees(state.trees):
        silos = [silo for silo in updates.silos if tree_of(state, silo) == tree]
        if silos:
            state = state.with_trees(**{tree: job.mean(updates, "model", silos)})
    return state


def trees(names: Iterable[str]) -> list[str]:
    """Those of the names that are clusters, by number (not by letter: 2 comes before 10)."""
    found = (name for name in names if name.startswith("cluster/"))
    return sorted(found, key=lambda name: int(name.rpartition("/")[2]))
