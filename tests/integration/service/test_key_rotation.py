"""A silo that replaces its key while a job runs: the guard that starts again answers with the key of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.wire import SigningKey
from tests.integration.service.site import Process, Site, federation, wait_until
from tests.tiers import mark_thorough

DIGITS = {"classes": [str(digit) for digit in range(10)], "inputShape": [1, 8, 8]}
"""With names of classes: else a silo would wait for what the other, which is not there, calls them."""


def replace_key(folder: Path, keep: bool) -> tuple[SigningKey, SigningKey]:
    """Replace a silo's key, as the silo controller does and as the kubelet of the next pod mounts it."""
    before, after = SigningKey.load(folder / "key.pem"), SigningKey.generate()
    if keep:
        before.save(folder / f"{before.verify_key.key_id}.pem")
    (folder / "key.pem").unlink()
    after.save(folder / "key.pem")
    return before, after


@pytest.mark.parametrize("keep", mark_thorough([True, False], [False]))
def test_a_job_ends_with_the_key_that_it_began_with(tmp_path: Path, keep: bool) -> None:
    site = Site(tmp_path / "job", federation(rounds=2, data=DIGITS))
    volume = site.workdir.volume("north")
    log = volume.audit / "log.jsonl"
    running = [site.aggregator(), site.guard(), site.trainer("north")]
    try:
        wait_until(lambda: log.exists() and '"acknowledged"' in log.read_text(), "the first answer")
        # Else the guard that starts again asks first how much of it has arrived.
        wait_until(lambda: not list(volume.outbox.glob("*.update")), "the end of that answer")
        running.pop(1).kill()
        _, after = replace_key(volume.guard, keep)
        guard = site.guard()
        running.append(guard)
        if not keep:
            assert guard.exit_code() != 0, "the aggregator knows the silo by the other key"
            assert site.agent("north")["spec"]["trust"]["publicKey"] in site.log("north")
            return
        running += [site.guard("south"), site.trainer("south")]
        codes = [process.exit_code() for process in running]
        assert codes == [0] * len(running), "\n".join(
            path.read_text() for path in site.workdir.logs.iterdir()
        )
        assert site.status()["phase"] == "Complete"
        assert log.read_text().count('"acknowledged"') > 1
        assert SigningKey.load(volume.guard / "key.pem").verify_key == after.verify_key
    finally:
        end(running)


def end(running: list[Process]) -> None:
    for process in running:
        process.kill()
