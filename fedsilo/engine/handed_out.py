"""The trees that tasks hand out: in fewer bytes where the job has them sent so, and as silos decode them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedsilo.api.communication import DownloadSpec
from fedsilo.encodings.registry import encoding_of
from fedsilo.encodings.trees import decoded_tree, encoded_tree
from fedsilo.engine.decoded import AnsweredTask
from fedsilo.methods.contract import learned_tensors
from fedsilo.methods.interface import INITIAL, PREPROCESSING, Assignment
from fedsilo.methods.state import State, Tree
from fedsilo.wire import Contract, ModelSignature

ENCODED = "communication."
"""Begins the names of trees that hold parts of others."""

OF_JOB = (INITIAL, PREPROCESSING)
"""Trees of the state that are the job's own, and no method's."""

ContractOf = Callable[[Assignment], Contract]
"""What may come back for a task of an exchange."""


@dataclass(frozen=True)
class HandedOut:
    """What the silos of a round had before them.

    :param tasks: by silo.
    :param inexact: trees of the state that silos saw otherwise than they are, as they saw them.
    """

    tasks: Mapping[str, AnsweredTask]
    inexact: Mapping[str, Tree]

    def seen(self, state: State) -> State:
        """The state as the silos saw it: what they send differs from that, and a method compares both."""
        return state.with_trees(**self.inexact)

    def restored(self, before: State, after: State) -> State:
        """The new state, in which a tree that the method left alone is exact again."""
        same = [name for name, tree in self.inexact.items() if after.trees.get(name) is tree]
        return after.with_trees(**{name: before.trees[name] for name in same if name in before.trees})


def with_encoded_trees(
    download: DownloadSpec,
    signature: ModelSignature,
    contract: ContractOf,
    offered: State,
    assignments: Mapping[str, Assignment],
) -> tuple[State, Mapping[str, Assignment]]:
    """State and assignments with the method's trees as the job has them sent."""
    encoding = encoding_of(download)
    if encoding is None:
        return offered, assignments
    trees: dict[str, Tree] = {}
    given: dict[str, Assignment] = {}
    for silo, plain in assignments.items():
        shapes = learned_tensors(signature, contract(plain))
        for tree in plain.trees.values():
            if ENCODED + tree not in trees:
                trees[ENCODED + tree] = encoded_tree(offered.tree(tree), shapes, encoding)
        given[silo] = Assignment({name: ENCODED + tree for name, tree in plain.trees.items()}, plain.settings)
    return offered.with_trees(**trees), given


def as_silos_saw_it(
    download: DownloadSpec,
    signature: ModelSignature,
    contract: ContractOf,
    offered: State,
    assignments: Mapping[str, Assignment],
) -> HandedOut:
    """The trees that the silos of a round were given, as they decoded them.

    :param offered: and `assignments`: with trees as they were sent where that loses something, as they were before
        otherwise.
    """
    encoding = encoding_of(download) if download.is_lossy else None
    whole: dict[str, Tree] = {}
    tasks: dict[str, AnsweredTask] = {}
    for silo, given in assignments.items():
        of_method = {name: tree for name, tree in given.trees.items() if name not in OF_JOB}
        for tree in set(of_method.values()) - whole.keys():
            found, shapes = offered.tree(tree), learned_tensors(signature, contract(given))
            whole[tree] = decoded_tree(found, shapes, encoding) if encoding else found
        tasks[silo] = AnsweredTask(contract(given), {name: whole[tree] for name, tree in of_method.items()})
    return HandedOut(tasks, {tree.removeprefix(ENCODED): whole[tree] for tree in whole} if encoding else {})
