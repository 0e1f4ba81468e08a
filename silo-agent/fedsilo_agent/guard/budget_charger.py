"""Charging the institution's ledger with what is about to leave, where its policy has a budget for the dataset."""

from __future__ import annotations

import logging
from pathlib import Path

from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.errors import FedsiloError, PolicyRefused
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.budget_figures import stated_ledger
from fedsilo.silo.ledger_head import LedgerHead
from fedsilo.silo.privacy_account import Budget, Charge, PrivacyAccount
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.wire.problems import one_line
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.task_check import TaskCheck

log = logging.getLogger("fedsilo.guard")


class BudgetCharger:
    """The ledger of one job's dataset.

    :param ledgers: the institution's directory of them; None where there is none, so that a budget cannot be kept.
    :param report: told what is spent, where the ledger lies nowhere that the silo's controller could read it.
    """

    def __init__(self, check: TaskCheck, ledgers: Path | None, report: ReceiptsReport | None = None) -> None:
        self._check, self._ledgers, self._report = check, ledgers, report

    def charge(
        self, update: str, mechanisms: tuple[Mechanism, ...], known: LedgerHead | None = None
    ) -> LedgerHead | None:
        """Put an update on record before it leaves, once; how far the ledger has come then, None without a budget.

        :param update: its digest.
        :param mechanisms: that it went through.
        :param known: how far it had come with the charge before, by the guard's own audit log.
        :raises PolicyRefused: when it would exceed the budget, or nothing says what may be learned from it.
        :raises AuditBroken: when the ledger was changed, or has lost what the audit log knows of.
        :raises FileDamaged: when something else has the name of its lock or its directory.
        :raises OSError: when the disk is full; the same can be done again.
        """
        stated, job = self._check.budget, self._check.agent.spec.job
        if stated is None:
            return None
        dataset = stated.dataset
        if self._ledgers is None:
            raise PolicyRefused(
                f"policy.privacyBudget: dataset {dataset}: this guard has no ledger to keep it in; start it with "
                "--ledgers"
            )
        if not mechanisms:
            raise PolicyRefused(
                f"policy.privacyBudget: dataset {dataset}: the trainer names no mechanism that the update went "
                "through, so that anything might be learned from it; use a method that differential privacy covers"
            )
        ledger, now = self._ledger(stated, self._ledgers, known), self._check.clock()
        ledger.charge(Charge(f"{job.namespace}/{job.name}", job.uid, update, mechanisms), now)
        account = ledger.account(now)
        self._state(dataset, account)
        return LedgerHead(dataset, account.lines, account.hash)

    def require_whole(self, known: LedgerHead | None) -> None:
        """Check the ledger before anything is computed that would be charged.

        :param known: how far it had come with the last charge, by the guard's own audit log.
        :raises AuditBroken: when the ledger was changed, or has lost what the audit log knows of.
        :raises FileDamaged: when something else has the name of its lock or its directory.
        :raises PolicyRefused: when the present policy cannot be read.
        :raises OSError: when the disk is full; the same can be done again.
        """
        if (stated := self._check.budget) is not None and self._ledgers is not None:
            self._ledger(stated, self._ledgers, known)

    def begin(self, known: LedgerHead | None = None) -> None:
        """Check the ledger when a guard starts, and say what is spent so far, which an earlier one may not have said.

        :param known: how far it had come with the last charge, by the guard's own audit log.
        """
        if self._ledgers is None:
            return
        # A policy or a ledger that cannot be read, or a full disk, lets nothing leave later, and is reported then.
        try:
            if (stated := self._check.budget) is not None:
                ledger = self._ledger(stated, self._ledgers, known)
                if self._report is not None and self._report.is_read:
                    self._state(stated.dataset, ledger.account(self._check.clock()))
        except (FedsiloError, OSError) as error:
            log.error("privacy ledger: %s", one_line(str(error)))

    def _ledger(self, stated: PrivacyBudget, ledgers: Path, known: LedgerHead | None) -> PrivacyLedger:
        """The dataset's ledger, whole as far as is known, with the institution's present word on the budget."""
        ledger = PrivacyLedger(ledgers, stated.dataset, () if known is None else (known,))
        seconds = None if stated.period is None else stated.period.seconds
        budget = Budget(stated.epsilon, stated.delta, seconds, stated.unit)
        ledger.set_budget(budget, self._check.clock())
        return ledger

    def _state(self, dataset: str, account: PrivacyAccount) -> None:
        if self._report is not None and self._report.is_read:
            uid = self._check.agent.spec.job.uid
            self._report.take_ledger(stated_ledger(dataset, account, uid))
