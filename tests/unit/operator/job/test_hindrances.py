"""A silo whose guard says that it cannot go on is named, as long as it says so."""

from __future__ import annotations

from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import NORTH


def test_a_full_disk_is_a_reason_of_silos_ready_until_there_is_room() -> None:
    harness = JobHarness().running()
    batch = harness.batch()
    entries = [
        entry | ({"hindrance": "StorageFull"} if entry["name"] == NORTH.name else {})
        for entry in harness.job["status"]["silos"]
    ]
    job = harness.job
    harness.cluster.put(job | {"status": job["status"] | {"silos": entries}}, "fedsilo-aggregator")
    harness.settle()
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "StorageFull")
    assert message.startswith(f"Silo {NORTH}: the disk of its guard is full")
    (north,) = (one for one in harness.job["status"]["silos"] if one["name"] == NORTH.name)
    assert "make room" in north["message"]
    assert harness.batch() == batch, "nothing is stopped for that"
    job = harness.job
    for entry in job["status"]["silos"]:
        entry.pop("hindrance", None)
    harness.cluster.put(job, "fedsilo-aggregator")
    harness.settle()
    assert (harness.condition("SilosReady") or ("",))[0] == "True"
