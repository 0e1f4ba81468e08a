"""How a Job ended: from what its pods left to what a person reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.reasons import Reason
from tests.unit.operator.diagnosis.observed import (
    Case,
    ended_status,
    failed_condition,
    job,
    looked_status,
    pod,
    runs,
    words,
)
from tests.unit.operator.golden import sentences

POLICY = "Container trainer for pod silo-north/x failed with exit code 3 matching FailJob rule at index 1"
GUARD_POLICY = POLICY.replace("trainer", "guard").replace("code 3", "code 5")
BACKOFF = "Job has reached the specified backoff limit"

OUTCOMES = {
    "complete": Case("Complete", job=job(end={"type": "Complete", "status": "True"})),
    "data are wrong": Case(
        "DataInvalid",
        [
            pod(
                **ended_status(
                    3, words("DataInvalid", "scans/train.npz: label 11 is not below 10 classes; correct it")
                )
            )
        ],
        job=job(end=failed_condition("PodFailurePolicy", POLICY)),
    ),
    "audit log is broken": Case(
        "AuditBroken",
        [pod("guard", **ended_status(5, words("AuditBroken", "audit/log.jsonl: line 7 has another hash")))],
        job=job("guard", end=failed_condition("PodFailurePolicy", POLICY)),
    ),
    "network is open": Case(
        "PolicyRefused",
        [pod(**looked_status(5, words("PolicyRefused", "isolation: 10.96.0.1:443 (TCP) can be reached")))],
        job=job(end=failed_condition("PodFailurePolicy", POLICY)),
    ),
    "an old guard image has no look at the network": Case(
        "BackoffLimitExceeded",
        [
            pod(
                **looked_status(
                    128, 'exec: "fedsilo-isolation": executable file not found', reason="StartError"
                )
            )
        ],
        job=job(failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "a reason that nobody knows": Case(
        "InternalError",
        [pod("guard", **ended_status(1, words("A" * 2000, "secrets")))],
        job=job("guard", end=failed_condition("PodFailurePolicy", "no code")),
    ),
    "a guard's defect": Case(
        "InternalError",
        [pod("guard", **ended_status(1, words("InternalError", "KeyError: 'what a trainer wrote'")))],
        job=job("guard", failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "program that is not in the image": Case(
        "BackoffLimitExceeded",
        [pod(**ended_status(128, 'exec: "fedsilo-trainer": executable file not found', reason="StartError"))],
        job=job(failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "no last words, only a code": Case(
        "DataInvalid", [pod(**ended_status(3))], job=job(end=failed_condition("PodFailurePolicy", POLICY))
    ),
    "crashed once too often": Case(
        "BackoffLimitExceeded",
        [pod(uid="a", made="11:00:00", **ended_status(1)), pod(**ended_status(139))],
        job=job(failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "out of memory once too often": Case(
        "OutOfMemory",
        [pod(**ended_status(137, reason="OOMKilled"))],
        job=job(failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "a peer that never answers": Case(
        "ProtocolProblem",
        [
            pod(
                "guard",
                **ended_status(
                    8, words("ProtocolProblem", "signature-invalid: the signature is not by key 12ab")
                ),
            )
        ],
        job=job("guard", failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF)),
    ),
    "pods are gone, only a code": Case(
        "PolicyRefused", job=job("guard", end=failed_condition("PodFailurePolicy", GUARD_POLICY))
    ),
    "pods are gone": Case(
        "BackoffLimitExceeded", job=job(failed=7, end=failed_condition("BackoffLimitExceeded", BACKOFF))
    ),
    "an administrator's deadline": Case(
        "DeadlineExceeded",
        job=job(end=failed_condition("DeadlineExceeded", "Job was active longer than specified deadline")),
    ),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_outcomes_have_the_messages_of_the_golden_file(case: str) -> None:
    observed = OUTCOMES[case]
    found = outcome(observed.job, observed.pods)
    assert found is not None
    assert (found.diagnosis.reason, found.succeeded) == (observed.reason, case == "complete")
    assert found.diagnosis.message == sentences("outcomes")[case]


def test_the_golden_file_has_just_the_cases() -> None:
    assert list(sentences("outcomes")) == list(OUTCOMES)


def test_the_termination_message_of_a_pod_is_waited_for() -> None:
    """Caches of Jobs and pods may be of different age."""
    over = job(end=failed_condition("PodFailurePolicy", POLICY))
    assert outcome(over, [pod(**runs())]) is None
    assert outcome(over, []) is not None


def test_a_job_that_is_not_over_has_no_outcome() -> None:
    assert outcome(None, []) is None
    assert outcome(job(), [pod(**runs())]) is None


TERMINATION_MESSAGES = (
    st.text(max_size=5000)
    | st.builds(words, st.text(), st.text(max_size=5000))
    | st.from_regex(r'\{"reason": .*')
)
CODES = st.integers(0, 255)


@given(TERMINATION_MESSAGES, CODES)
def test_of_what_a_trainer_leaves_only_a_known_reason_is_reported(left: str, code: int) -> None:
    """The words would pass the guard and its audit log."""
    job_failed = job(end=failed_condition("PodFailurePolicy"))
    found = outcome(job_failed, [pod(**ended_status(code, left))])
    assert found is not None
    silent = words(found.diagnosis.reason, "")
    known = outcome(job_failed, [pod(**ended_status(code, silent))])
    none = outcome(job_failed, [pod(**ended_status(code))])
    assert found in (none, known)
    assert found.diagnosis.reason in set(Reason)


@given(st.sampled_from(("guard", "aggregator")), TERMINATION_MESSAGES, CODES)
def test_whatever_a_process_leaves_is_reported_in_one_short_line_under_a_known_reason(
    component: str, left: str, code: int
) -> None:
    found = outcome(
        job(component, end=failed_condition("PodFailurePolicy")), [pod(component, **ended_status(code, left))]
    )
    assert found is not None
    assert found.diagnosis.message == " ".join(found.diagnosis.message.split())
    assert len(found.diagnosis.message) < 1200
    assert found.diagnosis.reason in KNOWN_REASONS


def test_errors_of_every_class_keep_their_reason() -> None:
    for reason in KNOWN_REASONS:
        found = outcome(
            job(end=failed_condition("PodFailurePolicy")), [pod(**ended_status(9, words(reason, "secrets")))]
        )
        assert found is not None
        assert found.diagnosis.reason == reason
        assert "secrets" not in found.diagnosis.message


KNOWN_REASONS = {
    "AuditBroken",
    "DataInvalid",
    "DeadlineExceeded",
    "FileDamaged",
    "InternalError",
    "JobFailed",
    "ManifestInvalid",
    "MethodError",
    "PolicyRefused",
    "ProtocolProblem",
    "QuorumLost",
    "SiloFailed",
    "StorageFailed",
    "WorkdirConflict",
}
