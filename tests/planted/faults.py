"""Each planted fault is one change of one file, such as somebody makes who means well or is in a hurry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlantedFault:
    """One change of a file, and where it is noticed.

    :param promise: what the product promises and then does not keep.
    :param before: text that stands in the file once.
    :param noticed: tests that fail with it, by path.
    """

    promise: str
    file: str
    before: str
    after: str
    noticed: str


FAULTS = (
    PlantedFault(
        "a silo counts by its samples",
        "fedsilo/methods/reading.py",
        "updates.samples(silo) if rule ==",
        "1 + updates.samples(silo) if rule ==",
        "tests/unit/methods/test_creff.py",
    ),
    PlantedFault(
        "a class's mean is over the silos that sent it",
        "fedsilo/updates/combination.py",
        "total / senders.count(name)",
        "total / len(updates.silos)",
        "tests/unit/engine/test_combination.py",
    ),
    PlantedFault(
        "integers are averaged without loss",
        "fedsilo/updates/summation.py",
        "np.where(np.abs(totals - nearest) <= slack, nearest, np.trunc(totals))",
        "np.trunc(totals)",
        "tests/unit/engine/test_fold.py",
    ),
    PlantedFault(
        "SCAFFOLD's control variate moves by the share of the silos that answered",
        "fedsilo/methods/components/controlled_averaging.py",
        "n = count if self.rule.over_sampled else len(job.silos)",
        "n = count",
        "tests/unit/methods/test_scaffold.py",
    ),
    PlantedFault(
        "masks of two silos cancel",
        "fedsilo/secure_aggregation/masks.py",
        "if sign > 0:",
        "if sign >= -1:",
        "tests/unit/secure_aggregation",
    ),
    PlantedFault(
        "a secret needs a threshold of shares",
        "fedsilo/secure_aggregation/shamir.py",
        "points = sorted(shares)[:threshold]",
        "points = sorted(shares)[: threshold - 1]",
        "tests/unit/secure_aggregation",
    ),
    PlantedFault(
        "a number beyond its bound is refused, one that is no number too",
        "fedsilo/secure_aggregation/fixed_point.py",
        "wrong = ~(np.abs(values) <= self.bound)",
        "wrong = np.abs(values) > self.bound",
        "tests/unit/secure_aggregation",
    ),
    PlantedFault(
        "a change is clipped to its norm",
        "fedsilo/privacy/clipping.py",
        "norm / max(math.sqrt(squares), norm)",
        "norm / max(squares, norm)",
        "tests/unit/silo/test_private_update.py",
    ),
    PlantedFault(
        "epsilon is of all mechanisms together",
        "fedsilo/privacy/accounting.py",
        "inverse = sum(number / noise**2 for",
        "inverse = sum(number / noise for",
        "tests/unit/privacy",
    ),
    PlantedFault(
        "no more is spent than the budget",
        "fedsilo/silo/privacy_ledger.py",
        "if budget is not None and after > budget.epsilon:",
        "if budget is not None and account.spent > budget.epsilon:",
        "tests/unit/silo/test_privacy_ledger.py",
    ),
    PlantedFault(
        "an update is charged once",
        "fedsilo/silo/privacy_ledger.py",
        "if (charge.uid, charge.update) in known:",
        "if charge.update in known:",
        "tests/unit/silo/test_privacy_ledger.py",
    ),
    PlantedFault(
        "a class with too few examples does not leave",
        "fedsilo/silo/reply.py",
        "if block.label is not None and support.get(block.name, 0) < min_samples:",
        "if block.label is not None and support.get(block.name, min_samples) < min_samples:",
        "tests/unit/silo/test_release.py",
    ),
    PlantedFault(
        "the stricter of two policies holds",
        "fedsilo/silo/reply_limits.py",
        "min(self.personal_accuracy, other.personal_accuracy, key=named.index)",
        "max(self.personal_accuracy, other.personal_accuracy, key=named.index)",
        "tests/unit/silo/test_policy.py tests/unit/agent/test_current_policy.py",
    ),
    PlantedFault(
        "no transform runs that the institution has not named",
        "fedsilo/silo/policy.py",
        "allowed = policy.transforms or ()",
        "allowed = policy.transforms or [asked.name for asked in spec.transforms or ()]",
        "tests/unit/transforms",
    ),
    PlantedFault(
        "the contract is derived from what a person has approved",
        "silo-agent/fedsilo_agent/guard/task_check.py",
        "if task.spec_digest.hex() != self._spec_digest:",
        "if task.spec_digest.hex() != self.agent.spec.job.spec_digest:",
        "tests/unit/agent",
    ),
    PlantedFault(
        "an update is on record before it leaves",
        "silo-agent/fedsilo_agent/guard/outbox.py",
        '            sync_directory(self._directory)\n            self._audit.write("departure", task=task',
        '            self._audit.write("departure", task=task',
        "tests/unit/files/test_power_cuts.py",
    ),
    PlantedFault(
        "a permission is asked again when the answer is there",
        "silo-agent/fedsilo_agent/guard/answering.py",
        "        self._require_permitted(verified, contract)\n        # It may leave",
        "        # It may leave",
        "tests/unit/agent",
    ),
    PlantedFault(
        "an audit log that was changed is found",
        "fedsilo/silo/audit_chain.py",
        'line["previous"] == previous and line["seq"] == sequence',
        'line["seq"] == sequence',
        "tests/unit/agent/test_audit.py",
    ),
    PlantedFault(
        "a key signs for one purpose",
        "fedsilo/wire/keys.py",
        'domain.encode() + b"\\0" + message',
        "message",
        "tests/unit/wire",
    ),
    PlantedFault(
        "what was renamed before a crash is flushed after it",
        "fedsilo/files/durable.py",
        "    rename(temporary, path)\n    sync_directory(path.parent)",
        "    rename(temporary, path)",
        "tests/unit/files",
    ),
    PlantedFault(
        "a round that can have no quorum any more is lost at once",
        "fedsilo/engine/round.py",
        "if len(self.answered) + len(self.awaited_silos) < self.quorum:",
        "if len(self.awaited_silos) < self.quorum:",
        "tests/unit/engine/test_round.py",
    ),
    PlantedFault(
        "a job starts with silos that admit it by their own signed word",
        "operator/fedsilo_operator/job/participants.py",
        "    return verify_decision(question, agent, silo, public_key)",
        "    return None",
        "tests/unit/operator/job",
    ),
    PlantedFault(
        "what a kubelet says in a pod's first seconds is told once it has lasted",
        "operator/fedsilo_operator/diagnosis/diagnose.py",
        "    if found is None or left > 0.0:",
        "    if found is None:",
        "tests/unit/operator/diagnosis",
    ),
)
