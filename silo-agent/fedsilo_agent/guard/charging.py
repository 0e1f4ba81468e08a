"""Charging the institution's ledger with what is about to leave, where its policy has a budget for the dataset."""

from __future__ import annotations

from pathlib import Path

from fedsilo.errors import PolicyRefused
from fedsilo.silo.privacy_ledger import Budget, Charge, PrivacyLedger
from fedsilo_agent.guard.inspection import SignedUpdate
from fedsilo_agent.guard.task_check import TaskCheck


class Charging:
    """The ledger of one job's dataset.

    :param ledgers: the institution's directory of them; None where there is none, so that a budget cannot be kept.
    """

    def __init__(self, check: TaskCheck, ledgers: Path | None) -> None:
        self._check, self._ledgers = check, ledgers

    def charge(self, update: SignedUpdate) -> None:
        """Put an update on record before it leaves, once.

        :raises PolicyRefused: when it would exceed the budget, or nothing says what may be learned from it.
        :raises OSError: when the disk is full; the same can be done again.
        """
        stated, job = self._check.budget, self._check.agent.spec.job
        if stated is None:
            return
        dataset = stated.dataset
        if self._ledgers is None:
            raise PolicyRefused(
                f"policy.privacyBudget: dataset {dataset}: this guard has no ledger to keep it in; start it with "
                "--ledgers"
            )
        if not update.mechanisms:
            raise PolicyRefused(
                f"policy.privacyBudget: dataset {dataset}: the trainer names no mechanism that the update went "
                "through, so that anything might be learned from it; use a method that differential privacy covers"
            )
        ledger, now = PrivacyLedger(self._ledgers, dataset), self._check.clock()
        seconds = None if stated.period is None else stated.period.seconds
        ledger.set_budget(Budget(stated.epsilon, stated.delta, seconds), now)
        ledger.charge(Charge(f"{job.namespace}/{job.name}", job.uid, update.digest, update.mechanisms), now)
