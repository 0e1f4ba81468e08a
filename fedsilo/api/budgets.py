"""What is spent of an institution's privacy budgets, as the statuses of its Silo and of its SiloAgents state it.

The ledgers in the institution hold every charge (`fedsilo.silo.privacy_ledger`); what stands here follows from them.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from fedsilo.api.common import DatasetName, Fields, Integer, Number, Sha256, Text
from fedsilo.api.differential_privacy import PrivacyUnit
from fedsilo.api.notations import Time

MAX_LATER = 4
"""Times for which it is said what will be spent then."""

MAX_BUDGET_JOBS = 100
"""Jobs that are named beside a budget."""


class LaterBudget(Fields):
    """What will be spent from a time on, if nothing more is charged: charges end with the budget's period."""

    model_config = ConfigDict(extra="ignore")

    since: Time = Field(description="From when on.")
    spent: Number = Field(ge=0, description="Epsilon that is spent then.")


class StatedLedger(Fields):
    """What a guard says of the ledger of its job's dataset."""

    model_config = ConfigDict(extra="ignore")

    dataset: DatasetName = Field(description="The dataset.")
    lines: Integer = Field(ge=0, description="Lines of the ledger that this summarises.")
    hash: Sha256 = Field(description="Hash of the last of them.")
    delta: Number = Field(gt=0, lt=1, description="At which epsilon is counted.")
    spent: Number = Field(ge=0, description="Epsilon of everything that was charged, over all jobs.")
    of_job: Number = Field(ge=0, description="Epsilon of what was charged to this job alone.")
    later: tuple[LaterBudget, ...] = Field(
        default=(),
        max_length=MAX_LATER,
        description="What will be spent later, where the budget has a period.",
    )


class BudgetJob(Fields):
    """What a job has spent of a budget, and what it may yet."""

    model_config = ConfigDict(extra="ignore")

    uid: Text = Field(min_length=1, description="Identity of the job.")
    job: Text = Field(min_length=1, description="The job, namespace/name.")
    spent: Number = Field(ge=0, description="Epsilon of its own charges, as its guard said last.")
    reserved: Number = Field(
        default=0,
        ge=0,
        description="What it may yet spend of the epsilon that it states; 0 once it has ended.",
    )


class BudgetStatus(Fields):
    """What is spent of a dataset's budget, and what is left."""

    model_config = ConfigDict(extra="ignore")

    dataset: DatasetName = Field(description="The dataset.")
    unit: PrivacyUnit = Field(default="example", description="Of what epsilon is.")
    epsilon: Number = Field(gt=0, description="The budget.")
    delta: Number = Field(gt=0, lt=1, description="At which epsilon is counted.")
    spent: Number = Field(
        ge=0, description="Epsilon of everything that left about the dataset, as a guard said last."
    )
    reserved: Number = Field(
        ge=0, description="What jobs that were admitted and have not ended may yet spend."
    )
    left: Number = Field(ge=0, description="What another job may spend.")
    jobs: tuple[BudgetJob, ...] = Field(
        default=(),
        max_length=MAX_BUDGET_JOBS,
        description="By whom; together they come to less than the sum.",
    )
    lines: Integer = Field(default=0, ge=0, description="Lines of the ledger that the figures are of.")
    later: tuple[LaterBudget, ...] = Field(
        default=(),
        max_length=MAX_LATER,
        description="What will be spent later, where the budget has a period.",
    )
