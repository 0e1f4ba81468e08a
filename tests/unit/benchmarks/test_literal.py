"""The papers' pseudo-code beside the jobs: the same weights up to rounding, and other weights where it is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.literal import pictures
from benchmarks.literal.federation import Federation
from benchmarks.literal.questions import Record, Variant, questions, records
from benchmarks.literal.runs import Comparison, compare, loop_of, run
from benchmarks.tables.cells import Cell
from benchmarks.tables.definition import merge_patch
from tests.unit.benchmarks.test_layouts import archive

ROUNDING = 2e-6


def small_cell(question: str, folder: Path, **training: Any) -> Cell:
    """The question's first cell with three silos, 60 noisy images and a small network."""
    archive(folder, 60)
    found = questions()[question].cell("base", 0)
    smaller = {
        "silos": 3,
        "data": {"samples": 60, "testSamples": 20},
        "partition": {"scheme": "iid", "config": None},
        "job": {
            "model": {"name": "mlp", "config": {"hidden": [8], "bias": None}},
            "training": {"rounds": 3, "batchSize": 8, "warmupRounds": 0, **training},
            "participation": {"fraction": 0.7},
            "evaluation": {"every": 1},
        },
    }
    return Cell(found.row, found.column, 0, merge_patch(found.settings, smaller))


def loop_comparison(question: str, folder: Path, loop: dict[str, Any], **training: Any) -> Comparison:
    return compare(loop_of(question, loop), small_cell(question, folder, **training), folder)


@pytest.mark.parametrize("question", ["scaffold", "scamap", "fedbr"])
def test_the_pseudo_code_follows_the_job_up_to_rounding(question: str, tmp_path: Path) -> None:
    found = loop_comparison(question, tmp_path, {}, warmupRounds=2)
    assert len(found.anew) == len(found.job) == 3
    assert 0 < max(found.apart["float32"] + found.apart["float64"] + found.anew) < ROUNDING
    assert found.free["float64"] == pytest.approx(found.job, abs=0.11)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("question", "changed"),
    [
        ("scaffold", {"option": "I"}),
        ("scaffold", {"controlled": False}),
        ("scaffold", {"server_rate": 0.5}),
        ("scamap", {"part": 1.0}),
        ("fedbr", {"pseudo_data": "central"}),
        ("fedbr", {"contrast": 0.25}),
        ("fedbr", {"pseudo": 0.5}),
    ],
)
def test_what_an_experiment_changes_leads_elsewhere(
    question: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    assert loop_comparison(question, tmp_path, changed).apart["float64"][-1] > ROUNDING


def test_without_pseudo_data_and_contrast_fedbr_is_fedavg(tmp_path: Path) -> None:
    cell = small_cell("fedbr", tmp_path, optimizer={"momentum": 0, "weightDecay": 0})
    of = Federation.of(cell.manifest(tmp_path, "cpu"), torch.float64)
    one, other = loop_of("fedbr", {"pseudo": 0, "contrast": 0}), loop_of("scaffold", {"controlled": False})
    after = [loop.round(of, loop.start(of), 1).model for loop in (one, other)]
    torch.testing.assert_close(*after, rtol=0, atol=1e-12)


def test_a_run_ends_where_its_model_is_lost(tmp_path: Path) -> None:
    cell = small_cell("scaffold", tmp_path, optimizer={"learningRate": 1000, "weightDecay": 1})
    course = run(loop_of("scaffold", {}), Federation.of(cell.manifest(tmp_path, "cpu")))
    assert course.lost == 2 and course.rounds == [1]


def test_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    cell = small_cell("scaffold", tmp_path)
    course = run(loop_of("scaffold", {}), Federation.of(cell.manifest(tmp_path, "cpu")))
    assert course.rounds == [1, 2, 3] and course.measures["apart"][-1] > 0
    Record("scaffold", "base", 0, course, {}).append(tmp_path / "causes.jsonl")
    (found,) = records(tmp_path / "causes.jsonl")
    assert found.course == course
    question = questions()["scaffold"]
    assert f"| base | {100 * course.accuracies[-1]:.1f} |" in pictures.table(question, [found])
    question = question.model_copy(update={"panels": {"rates": ["base"]}})
    assert pictures.draw(question, [found], tmp_path / "causes.png")
    assert (tmp_path / "causes.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", list(questions()))
def test_every_variant_is_a_job_and_a_loop(name: str, tmp_path: Path) -> None:
    question = questions()[name]
    assert question.variants["base"] == Variant()
    for title, variant in question.variants.items():
        question.cell(title, 0).manifest(tmp_path, "cpu")
        loop_of(name, variant.loop)
    drawn = {title for titles in question.panels.values() for title in titles}
    assert drawn <= set(question.variants)
