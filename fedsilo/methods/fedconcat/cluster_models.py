"""A model per cluster of silos, trained by FedAvg inside it.

State: trees `cluster/0` to `cluster/K-1`; values `clusters` (K) and `member` (silo -> number of its cluster). Clusters
are numbered by their first silo and keep their numbers, since the order of concatenation is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State


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


def average_inside(state: State, updates: Updates) -> State:
    """FedAvg inside each cluster; one without an answer keeps its model."""
    for tree in trees(state.trees):
        silos = [silo for silo in updates.silos if tree_of(state, silo) == tree]
        if silos:
            state = state.with_trees(**{tree: updates.mean("model", silos)})
    return state


def trees(names: Iterable[str]) -> list[str]:
    """Names of the cluster models among all tree names, by number and not by letter: 2 comes before 10."""
    found = (name for name in names if name.startswith("cluster/"))
    return sorted(found, key=lambda name: int(name.rpartition("/")[2]))
