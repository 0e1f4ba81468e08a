"""The campaign of encodings: what it would run, that every job is valid, and how runs become a table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.communication import ENCODINGS, METHODS, SCALES, SEEDS, campaign, cells, manifest
from benchmarks.communication_report import report
from fedsilo.methods import registry


def line(encoding: str, seed: int, accuracy: float | None) -> dict[str, Any]:
    cell = {"dataset": "mnist", "method": "fedavg", "encoding": encoding, "seed": seed}
    scale = {"samples": 100, "test": 50, "rounds": 3, "silos": 10}
    return cell | scale | {"accuracy": accuracy, "up": 60_000, "down": 120_000, "exchanges": 30}


def test_every_cell_is_a_job_once_and_whole_seeds_come_first() -> None:
    found = list(cells())
    assert len(set(found)) == len(found) == len(SEEDS) * len(SCALES) * len(METHODS) * len(ENCODINGS)
    assert [cell.seed for cell in found] == sorted(cell.seed for cell in found)
    for cell in found:
        if cell.seed == SEEDS[0]:
            job = manifest(cell, Path("data")).job.spec
            assert registry.bind(job).spec.training.seed == cell.seed
            assert (job.communication is None) == (cell.encoding == "float32")


def test_what_has_run_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = next(cells())
    path.write_text(json.dumps(asdict(first)) + "\n")
    before = path.read_bytes()
    campaign([first], tmp_path / "no such folder", path)
    assert path.read_bytes() == before


def test_a_table_has_bytes_of_an_exchange_and_the_spread_of_seeds(tmp_path: Path) -> None:
    lines = [line("float32", 1, 0.8), line("float32", 2, 0.9), line("int8 up", 1, 0.75)]
    text = report(lines, list(ENCODINGS), tmp_path / "picture.png")
    assert "### fedavg, mnist" in text and "100 training and 50 test images, 10 silos, 3 rounds." in text
    assert "| float32 | 2.0 | 4.0 | 85.0 ± 7.1 | 2 |" in text
    assert "| int8 up | 2.0 | 4.0 | 75.0 | 1 |" in text
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_a_seed_that_diverged_is_counted_and_in_no_mean(tmp_path: Path) -> None:
    lines = [line("float32", 1, 0.8), line("float32", 2, None), line("int8 up", 1, None)]
    text = report(lines, list(ENCODINGS), tmp_path / "picture.png")
    assert "| float32 | 2.0 | 4.0 | 80.0, 1 diverged | 2 |" in text
    assert "| int8 up | 2.0 | 4.0 | 1 diverged | 1 |" in text
