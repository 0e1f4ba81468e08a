"""An institution on a machine without Kubernetes: real commands and processes, a real gateway and aggregator."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from fedsilo.api.observed import condition
from fedsilo.silo.decision import read_decision
from fedsilo_operator.objects import SILO_KIND
from tests.integration.institution.hub import DIGITS, NORTH, Consortium, model_of
from tests.integration.service.site import Process, Site, federation, wait_until


@pytest.fixture(scope="module")
def directly(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the model of a run of the same job without a hub."""
    site = Site(tmp_path_factory.mktemp("directly"), federation(rounds=2, data=DIGITS))
    with ExitStack() as stack:
        for name in ("north", "south"):
            for process in (site.guard(name), site.trainer(name)):
                stack.callback(process.kill)
        aggregator = site.start_aggregator()
        stack.callback(aggregator.kill)
        assert aggregator.exit_code() == 0, site.log()
    return model_of(site)


@contextmanager
def neighbours(site: Site) -> Iterator[Process]:
    """The aggregator and the other silo of the job; yields the aggregator."""
    with ExitStack() as stack:
        aggregator = site.start_aggregator()
        stack.callback(aggregator.kill)
        for process in (site.guard("south"), site.trainer("south")):
            stack.callback(process.kill)
        yield aggregator


async def test_a_job_gives_the_same_bytes_also_after_sigkill_in_the_middle_of_a_round(
    directly: str, consortium: Consortium
) -> None:
    async with consortium.gateway():
        said = await consortium.join()
        assert consortium.directory.signing_key().verify_key.fingerprint in said
        consortium.offer()
        with consortium.serving() as first:
            consortium.propose()
            admitted = await consortium.wait_reported("Admitted")
            public = consortium.directory.signing_key().verify_key.to_text()
            assert read_decision(admitted["decision"], public).decision == "Admitted"
            assert admitted["proposal"]["trainerImage"].startswith("installed/fedsilo:")
            offer = consortium.cluster.peek(SILO_KIND, NORTH)["status"]["offer"]
            assert [one["name"] for one in offer["datasets"]] == ["digits"]
            consortium.suspend(False)
            with neighbours(consortium.site) as aggregator:
                audit = consortium.audit()
                await asyncio.to_thread(
                    wait_until, lambda: audit.exists() and "departure" in audit.read_text(), "a departure"
                )
                first.kill()
                with consortium.serving() as second:
                    assert await asyncio.to_thread(aggregator.exit_code) == 0, consortium.site.log()
                    finished = await consortium.wait_reported("Finished")
                    second.send_signal(signal.SIGTERM)
                    assert await asyncio.to_thread(second.wait, 30) == 0
    assert model_of(consortium.site) == directly
    assert finished["decision"] == admitted["decision"]
    assert finished["receipts"]["updates"] == 3
    assert condition({"status": finished}, "Finished") is not None
