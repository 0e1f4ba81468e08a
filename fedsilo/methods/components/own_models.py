"""Models that silos hold for themselves from round to round: the private tree `PERSONAL`, which never leaves them."""

from __future__ import annotations

from fedsilo.methods.interface import PERSONAL_TREE, SiloContext
from fedsilo.methods.state import State, Tree


def own_model(silo: SiloContext, private: State) -> Tree:
    """The silo's own model; before its first answer the job's initial one, for which a method has to declare
    `silos_need_initial`.
    """
    return private.tree(PERSONAL_TREE) if PERSONAL_TREE in private.trees else silo.initial_model()
