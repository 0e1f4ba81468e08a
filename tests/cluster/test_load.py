"""The load benchmark, small: it goes through all phases, and what does not depend on the machine holds."""

from __future__ import annotations

from pathlib import Path

from benchmarks.operator import measure


def test_a_few_jobs_go_through_all_phases(tmp_path: Path) -> None:
    figures = measure(3, 3, 4, tmp_path)
    assert figures["steady state: writes besides the lease"] == "0"
    assert figures["started again: writes besides the lease"] == "0"
    assert figures["started again: writes that the API server counted"].startswith("leases ")
    assert "," not in figures["started again: writes that the API server counted"]
    assert float(figures["RSS at its peak (VmHWM), MB"]) < 300
    reconcile = figures["steady state: reconcile, p50 / p99 / max, ms"]
    assert 0 < float(reconcile.split(" / ")[1]) < 1000
    for log in ("first.log", "second.log"):
        text = (tmp_path / log).read_text()
        for word in ("Traceback", "ERROR", "WARNING"):
            assert word not in text, text
