"""What is spent of a privacy budget, as admission reads it: from the ledger itself, or as a guard has stated it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fedsilo.api.agent import FrozenJob
from fedsilo.api.budgets import MAX_LATER, LaterBudget
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.timestamps import timestamp
from fedsilo.silo.privacy_account import PrivacyAccount
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy


@dataclass(frozen=True)
class SpentBudget:
    """What is spent of a budget when a job asks for its part.

    :param epsilon: of everything that was charged.
    :param reserved: what other jobs, admitted and not yet ended, may yet spend.
    """

    epsilon: float = 0.0
    reserved: float = 0.0


SpentOf = Callable[[str], SpentBudget]
"""Dataset -> what is spent of its budget."""


def stated_epsilon(spec: FederatedJobSpec, delta: float) -> float | None:
    """What a job comes to beforehand for one example of the silo; None where nothing says so.

    :param delta: of the budget. A job with `unit: silo` has no epsilon for examples of its own: what its updates are
        charged with follows from their noise.
    """
    of_updates, private = UpdatePrivacy.of_job(spec), spec.privacy.differential_privacy
    if of_updates is not None:
        return of_updates.example_epsilon(delta)
    return None if private is None else private.epsilon


def reserved_epsilon(job: FrozenJob, charged: float, delta: float) -> float:
    """What an admitted job may yet spend of the epsilon that it states.

    :param delta: of the budget.
    """
    stated = stated_epsilon(job.spec, delta)
    return 0.0 if stated is None else max(stated - charged, 0.0)


def stated_ledger(dataset: str, account: PrivacyAccount, job_uid: str) -> dict[str, Any]:
    """A ledger's account as a SiloAgent's status has it (`StatedLedger`), of a dataset with a budget."""
    assert account.budget is not None
    return {
        "dataset": dataset,
        "lines": account.lines,
        "hash": account.hash,
        "delta": account.budget.delta,
        "spent": account.spent_epsilon,
        "ofJob": account.of_job(job_uid),
        "later": [
            # Not before the charge has ended: times are written in whole seconds.
            {"since": timestamp(since + timedelta(seconds=1)), "spent": spent}
            for since, spent in account.spending_forecast(MAX_LATER)
        ],
    }


def spent_at(now: datetime, spent: float, later: Sequence[LaterBudget]) -> float:
    """What is spent at a time after it was stated, by what was said of later times."""
    return min([spent, *(one.spent for one in later if one.since.moment <= now)])
