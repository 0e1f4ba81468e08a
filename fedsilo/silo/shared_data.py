"""Datasets of a silo that are of the same data under two names, which a budget would be spent of twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedsilo.api.silo import Silo
from fedsilo.data.same_examples import of_the_same_data


def shared_data(silo: Silo, root: Path, here: bool = False) -> Iterator[str]:
    """One sentence for each two names of the same data of which at least one has a budget.

    :param root: folder that relative paths of datasets start from.
    :param here: whether the data are on this machine, where links to them are found.
    """
    if not silo.spec.policy.privacy_budget:
        return
    for names in of_the_same_data(silo.spec.datasets, root=root, here=here):
        budgets = [silo.spec.policy.budget_of(name) for name in names]
        if not any(budgets):
            continue
        without = [name for name, budget in zip(names, budgets, strict=True) if budget is None]
        ledgers = (
            f"{without[0]} has no budget" if without else "each name has a budget and a ledger of its own"
        )
        yield (
            f"policy.privacyBudget: datasets {names[0]} and {names[1]} are of the same data, and {ledgers}, so that "
            "what is learned of both adds up and nothing counts it; offer the data under one name"
        )
