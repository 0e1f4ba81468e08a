"""One running aggregator per file of tests, with two silos; a refused attack leaves its round open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.integration.service.client import Answer, SiloClient
from tests.integration.service.site import Process, Site, federation, wait_until


@dataclass
class Job:
    """A running job, and the refusals that the tests have seen from it."""

    site: Site
    aggregator: Process
    north: SiloClient
    south: SiloClient
    refused: Counter[str] = field(default_factory=Counter)

    def expect(self, code: str, answer: Answer) -> None:
        """The answer refuses with this code; that it was counted and logged is asserted at the end of the file."""
        assert answer.code == code, (answer.status, answer.body)
        self.refused[code] += 1

    def assert_all_refusals_were_reported(self) -> None:
        """Whoever watches the job sees each refusal: counted in its status, and a line of its log."""
        wait_until(
            lambda: self.site.status().get("refused") == dict(self.refused),
            f"{dict(self.refused)} in status.json",
        )
        lines = [line for line in self.site.log().splitlines() if " WARNING refused " in line]
        for code, count in self.refused.items():
            assert len([line for line in lines if f": {code}: " in line]) == count, code


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    site = Site(tmp_path_factory.mktemp("job"), federation(rounds=2))
    aggregator = site.aggregator()
    try:
        north, south = (SiloClient(site, silo) for silo in site.silos)
        yield Job(site, aggregator, north, south)
    finally:
        aggregator.kill()
