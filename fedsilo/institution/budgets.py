"""What is spent of an institution's privacy budgets on a machine: by its ledgers, and by what it has admitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from pydantic import ValidationError

from fedsilo.api.agent import FrozenJob, SiloAgent
from fedsilo.api.budgets import MAX_BUDGET_JOBS, BudgetJob, BudgetStatus
from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, holds, status_of
from fedsilo.institution.directory import SiloDirectory
from fedsilo.silo.budget_figures import reserved_epsilon
from fedsilo.silo.ledger_head import HeadStore
from fedsilo.silo.privacy_account import Budget, PrivacyAccount
from fedsilo.silo.privacy_ledger import ledgers_in


def reserving(record: Object, runs: bool = False) -> FrozenJob | None:
    """The job of a part that was admitted or has begun, and may yet send something.

    :param runs: whether guard or trainer do.
    """
    ended = any(holds(record, end) for end in (ConditionType.FINISHED, ConditionType.FAILED))
    admitted = holds(record, ConditionType.ADMITTED) or "configuration" in status_of(record)
    if not admitted or ((ended or "gone" in record) and not runs):
        return None
    try:
        return SiloAgent.model_validate({name: record[name] for name in ("metadata", "spec")}).spec.job
    except ValidationError:
        return None


def budget_status(
    dataset: str, budget: Budget, account: PrivacyAccount, jobs: Mapping[str, FrozenJob]
) -> BudgetStatus:
    """What is spent, reserved and left of a dataset's privacy budget, as a cluster has it in its Silo's status.

    :param jobs: by identity, those that may yet send something about the dataset.
    """
    charged = {charge.uid: charge.job for _, charge in account.charges}
    found = []
    for uid in dict.fromkeys((*charged, *jobs)):
        spent, job = account.of_job(uid), jobs.get(uid)
        name = charged[uid] if job is None else f"{job.namespace}/{job.name}"
        kept = 0.0 if job is None else reserved_epsilon(job, spent, budget.delta)
        found.append(BudgetJob(uid=uid, job=name, spent=spent, reserved=kept))
    total, spent = sum(job.reserved for job in found), account.spent_epsilon
    return BudgetStatus(
        dataset=dataset,
        unit=budget.unit,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        reserved=total,
        left=max(budget.epsilon - spent - total, 0.0),
        jobs=tuple(found[-MAX_BUDGET_JOBS:]),
        lines=account.lines,
    )


class BudgetReader:
    """What is spent of a silo's budgets, computed again only where a ledger or a part has changed, or a minute passed.

    :param directory: of the silo.
    """

    def __init__(self, directory: SiloDirectory) -> None:
        self._ledgers, self._audited = directory.ledgers, HeadStore(directory.ledgers)
        self._known: dict[str, tuple[object, BudgetStatus]] = {}

    def read(self, parts: Sequence[Object], now: datetime) -> Iterator[BudgetStatus]:
        """One for each dataset whose ledger has a budget.

        :param parts: records of parts in jobs.
        :raises AuditBroken: when a ledger was changed, or has lost what an audit log knows of.
        """
        jobs = {job.uid: job for part in parts if (job := reserving(part)) is not None}
        for ledger in ledgers_in(self._ledgers, self._audited):
            dataset, found = ledger.dataset, ledger.path.lstat()
            here = {uid: job for uid, job in jobs.items() if job.spec.data.dataset == dataset}
            size, changed, minute = found.st_size, found.st_mtime_ns, int(now.timestamp() / 60)
            basis = (size, changed, ledger.heads, tuple(here), minute)
            known = self._known.get(dataset)
            if known is None or known[0] != basis:
                account = ledger.account(now)
                if account.budget is None:
                    continue
                known = basis, budget_status(dataset, account.budget, account, here)
                self._known[dataset] = known
            yield known[1]
