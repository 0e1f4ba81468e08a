"""`kubectl fedsilo budget` shows what may be learned of the silos' datasets, what is spent, and by which job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pydantic import ValidationError

from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.observed import Object, reference, status_of
from fedsilo.cli.budget_table import budget_row, budget_table
from fedsilo.cli.cluster.federation import SILOS
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the silos whose budgets are shown."""
    parser.add_argument(
        "silo", nargs="?", metavar="SILO", help="name of one silo (default: all of the namespace)"
    )
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the silos of all namespaces")
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print one line for each budget."""
    kubectl = Kubectl.of(args)
    if args.silo is not None:
        silos: Sequence[Object] = [kubectl.get(SILOS, args.silo)]
    else:
        everywhere = ["--all-namespaces"] if args.all_namespaces else []
        silos = kubectl.get(SILOS, *everywhere)["items"]
    print(table(silos))
    return 0


def table(silos: Sequence[Object]) -> str:
    """One line for each budget of each Silo, as the silo controller has last heard from guards."""
    names, rows = list[str](), list[tuple[str, ...]]()
    for silo in sorted(silos, key=reference):
        for stated in status_of(silo).get("privacyBudget") or ():
            names.append(reference(silo))
            rows.append(_row(stated))
    if not rows:
        return "no silo here says that it has a privacy budget (spec.policy.privacyBudget)"
    return budget_table(rows, names)


def _row(stated: Object) -> tuple[str, ...]:
    try:
        return budget_row(BudgetStatus.model_validate(stated))
    except ValidationError:
        return (*"-------", "is not as this version writes it")
