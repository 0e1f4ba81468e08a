"""An output that failed is a condition of the job, while it runs and at its end."""

from __future__ import annotations

from tests.unit.operator.job.harness import JobHarness

FAULT = {"name": "mlflow", "delivered": False, "message": "503 from the server. It is tried again."}


def report(harness: JobHarness, *outputs: dict[str, object]) -> None:
    """The aggregator reports what became of the outputs."""
    job = harness.job
    harness.cluster.put(job | {"status": job["status"] | {"outputs": list(outputs)}}, "fedsilo-aggregator")
    harness.settle()


def test_a_job_without_outputs_says_nothing_of_them() -> None:
    assert JobHarness().running().condition("OutputsDelivered") is None


def test_a_failed_output_is_named_until_it_has_arrived() -> None:
    harness = JobHarness().running()
    report(harness, FAULT)
    status, reason, message = harness.condition("OutputsDelivered") or ("", "", "")
    assert (status, reason) == ("False", "OutputFailed")
    assert message == "mlflow: 503 from the server. It is tried again."
    assert harness.phase() == "Running"
    report(harness, {"name": "mlflow", "delivered": True})
    assert (harness.condition("OutputsDelivered") or ("", ""))[:2] == ("True", "Delivered")


def test_a_complete_job_still_says_what_did_not_arrive() -> None:
    harness = JobHarness().running()
    report(harness, FAULT)
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    harness.settle()
    assert harness.phase() == "Complete"
    assert (harness.condition("OutputsDelivered") or ("", ""))[:2] == ("False", "OutputFailed")
