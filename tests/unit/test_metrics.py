"""Metrics are served as they are declared, and Prometheus can read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedsilo.errors import ManifestInvalid
from fedsilo.http.probes import probes
from fedsilo.metrics import Distribution, Exposition, Sample, Series, volume_series
from tests.metrics_page import PAGE, PROCESSES, page

GAUGE = Series("a_gauge", "gauge", ("silo",), "A gauge.")
COUNTER = Series("a_counter_total", "counter", (), "A counter.")
HISTOGRAM = Series("a_histogram_seconds", "histogram", (), "A histogram.", (1.0, 5.0))


def exposition(*samples: Sample) -> Exposition:
    return Exposition("test", (GAUGE, COUNTER, HISTOGRAM), lambda: samples)


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == page(), "run make metrics"


@pytest.mark.parametrize("process", PROCESSES)
def test_names_are_those_of_the_conventions(process: str) -> None:
    declared = PROCESSES[process]
    assert len({series.name for series in declared}) == len(declared)
    for series in declared:
        assert series.name.startswith(("fedsilo_", "workqueue_", "rest_client_"))
        assert series.name.endswith("_total") == (series.kind == "counter"), series.name
        assert not {"job", "namespace", "instance", "pod", "le"} & set(series.labels), series.name
        assert series.help.endswith("."), series.name
        assert bool(series.bounds) == (series.kind == "histogram")
        assert list(series.bounds) == sorted(series.bounds)


def test_no_metric_means_two_things() -> None:
    different = {series for declared in PROCESSES.values() for series in declared}
    assert len({series.name for series in different}) == len(different)


def test_what_has_no_value_is_declared_all_the_same() -> None:
    text = exposition().text().decode()
    version = metadata.version("fedsilo")
    assert f'fedsilo_build_info{{program="test",version="{version}"}} 1.0' in text
    assert "process_resident_memory_bytes " in text
    assert text.partition("1.0\n")[2].partition("# HELP process_")[0] == (
        "# HELP a_gauge A gauge.\n# TYPE a_gauge gauge\n"
        "# HELP a_counter_total A counter.\n# TYPE a_counter_total counter\n"
        "# HELP a_histogram_seconds A histogram.\n# TYPE a_histogram_seconds histogram\n"
    )


def test_values_are_read_when_asked_for() -> None:
    value = 1.0

    def read() -> Iterator[Sample]:
        yield Sample(GAUGE, ('a "quoted"\nname',), value)

    asked = Exposition("test", (GAUGE,), read)
    for value in (2.0, 3.0):
        families = text_string_to_metric_families(asked.text().decode())
        family = next(one for one in families if one.name == GAUGE.name)
        assert [(one.labels, one.value) for one in family.samples] == [({"silo": 'a "quoted"\nname'}, value)]


def test_a_histogram_counts_cumulatively() -> None:
    found = Distribution(HISTOGRAM.bounds)
    for value in (0.5, 1.0, 2.0, 9.0):
        found.add(value)
    text = exposition(Sample(HISTOGRAM, (), found)).text().decode()
    (family,) = (one for one in text_string_to_metric_families(text) if one.type == "histogram")
    assert {(one.name, one.labels.get("le")): one.value for one in family.samples} == {
        ("a_histogram_seconds_bucket", "1.0"): 2,
        ("a_histogram_seconds_bucket", "5.0"): 3,
        ("a_histogram_seconds_bucket", "+Inf"): 4,
        ("a_histogram_seconds_count", None): 4,
        ("a_histogram_seconds_sum", None): 12.5,
    }


def test_a_volume_says_what_is_free_and_one_that_is_gone_says_nothing(tmp_path: Path) -> None:
    volume = volume_series("guard", ("silo",))
    free, size = volume.read(("north",), tmp_path)
    assert (free.series.name, size.series.name) == (
        "fedsilo_guard_volume_free_bytes",
        "fedsilo_guard_volume_size_bytes",
    )
    assert isinstance(free.value, int) and isinstance(size.value, int) and 0 < free.value < size.value
    assert not list(volume.read(("north",), tmp_path / "gone"))


def test_a_renamed_series_has_its_former_name_beside_it_and_a_new_one_has_none() -> None:
    renamed = Series("fedsilo_rounds_total", "counter", (), "Rounds.")
    new = Series("fedsilo_jobs", "gauge", (), "Jobs.", renamed=False)
    text = Exposition("test", (renamed, new), lambda: [Sample(renamed, (), 3), Sample(new, (), 2)]).text()
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.startswith("process_")
    }
    assert values == {
        "fedsilo_build_info": 1,
        "fedsilo_rounds_total": 3,
        "federated_rounds_total": 3,
        "fedsilo_jobs": 2,
    }


def test_a_series_that_is_not_declared_is_a_defect() -> None:
    with pytest.raises(KeyError):
        exposition(Sample(Series("other", "gauge", (), "Other."), (), 1)).text()


async def test_ready_is_who_misses_nothing() -> None:
    missing = ["pods", "silos"]
    unready: Callable[[], str] = lambda: ", ".join(missing)  # noqa: E731
    served = exposition(Sample(COUNTER, (), 3))
    async with probes(unready, served, port=0) as port, aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "pods, silos\n")
        missing.clear()
        assert await ask("/readyz") == (200, "ok\n")
        assert (await ask("/metrics"))[1] == served.text().decode()
        assert (await ask("/other"))[0] == 404


async def test_a_port_that_cannot_be_had_is_named() -> None:
    async with probes(lambda: "", exposition(), port=0) as taken:
        for port in (taken, 70_000):
            with pytest.raises(
                ManifestInvalid, match=rf"^port {port}: .* cannot be served \(.*; name another$"
            ):
                async with probes(lambda: "", exposition(), port=port):
                    pass


@pytest.mark.parametrize("head", [b"X: " + b"a" * 20_000, b"X" * 20_000 + b": a", b"X: a\r\n" * 200_000])
async def test_a_header_that_is_too_large_is_one_line(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with probes(lambda: "", exposition(), port=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert [record.exc_info for record in caplog.records] == [None]
    assert "\n" not in caplog.text.strip() and "refused what is no request: " in caplog.text
    assert len(caplog.text) < 300
