"""A sweep of runs: which it has, what it refuses, what a killed one keeps, and what it ends with."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedsilo
from fedsilo.cli.main import main
from fedsilo.local.in_process import run_in_process
from fedsilo.local.sweep.grid import MAX_RUNS, Setting, describe, grid, parse_setting, short_names
from fedsilo.local.sweep.runs import SweepDirectory
from fedsilo.local.workdir import RunDirectory
from tests.integration.local.manifest import job, silo, silos, write
from tests.unit.learning.test_devices import restored_settings

__all__ = ["restored_settings"]

RATES = {"spec.training.optimizer.learningRate": [0.01, 0.1]}


@pytest.fixture
def manifest(tmp_path: Path, restored_settings: Iterator[None], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return write(tmp_path / "digits.yaml", silos("north", "east"), training={"seed": 7})


def test_the_grid_is_every_combination_with_every_seed(manifest: Path) -> None:
    settings = [
        parse_setting("spec.training.batchSize=16,32"),
        parse_setting("spec.method.name=fedavg,fedprox"),
    ]
    points = grid(fedsilo.load_manifest(manifest), settings, 2)
    specs = [point.manifest.job.spec for point in points]
    assert [(spec.training.batch_size, spec.method.name, spec.training.seed) for spec in specs] == [
        (size, method, seed) for size in (16, 32) for method in ("fedavg", "fedprox") for seed in (7, 8)
    ]
    assert describe(points[0].values) == "batchSize=16, name=fedavg"
    assert len({point.digest for point in points}) == 8


def test_partition_seeds_are_of_every_silos_part_and_of_a_template(manifest: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    parts = {"name": "digits", "loader": "sklearn:digits", "partition": {"scheme": "iid", "seed": 40}}
    content = {**silos("clinic")[0], "kind": "SiloTemplate", "spec": {"count": 2, "datasets": [parts]}}
    names = [{"metadata": {**content["metadata"], "name": f"clinic-{number}"}} for number in (0, 1)]
    template.write_text(yaml.safe_dump_all([content, job(names)]))
    for file, first in ((manifest, 0), (template, 40)):
        points = grid(fedsilo.load_manifest(file), [], 2, 3)
        found = [
            {
                dataset.partition.seed
                for silo in point.manifest.silos
                for dataset in silo.spec.datasets
                if dataset.partition
            }
            for point in points
        ]
        assert found == [{first}, {first}, {first + 1}, {first + 1}, {first + 2}, {first + 2}]
        assert [point.seeds["partitionSeed"] for point in points] == [seed for (seed,) in found]
        assert len({point.combination for point in points}) == 1
    (point,) = grid(fedsilo.load_manifest(manifest), [], 1)
    assert point.seeds == {"seed": 7}


def test_partition_seeds_leave_silos_and_test_set_without_common_examples(tmp_path: Path) -> None:
    def part(index: int) -> dict[str, Any]:
        return {"partition": {"scheme": "iid", "silos": 3, "index": index}}

    members = [silo("north", part(0)), silo("east", part(1))]
    held = {"name": "test", "loader": "sklearn:digits", **part(2)}
    file = write(tmp_path / "digits.yaml", members, aggregator={"datasets": [held]})

    for further, point in enumerate(grid(fedsilo.load_manifest(file), [], 1, 3)):
        (test,) = point.manifest.job.spec.aggregator.datasets
        assert test.partition is not None and test.partition.seed == further


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([silo("north"), silo("east")], "not all silos hold a part of one"),
        ([silos("north", "east")[0], silo("east")], "not all silos hold a part of one"),
        (
            [
                silos("north", "east")[0],
                silo("east", {"partition": {"scheme": "iid", "silos": 2, "index": 1, "seed": 3}}),
            ],
            "there are parts by several seeds",
        ),
    ],
)
def test_partition_seeds_of_silos_without_one_partition_are_refused(
    members: list[dict[str, Any]], found: str, tmp_path: Path
) -> None:
    manifest = fedsilo.load_manifest(write(tmp_path / "digits.yaml", members))
    with pytest.raises(
        fedsilo.ManifestInvalid, match=f'--partition-seeds: dataset "digits": {found}; give each'
    ):
        grid(manifest, [], 1, 2)


def test_means_and_deviations_over_seeds_are_a_table_by_column_name(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--set",
        "spec.data.inputShape=[1, 8, 8],[64]",
        "--partition-seeds",
        "2",
        "--workdir",
        str(tmp_path / "s"),
    ]
    assert main(["sweep", "-f", str(manifest), "--json", *options]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [row["partitionSeed"] for row in found["runs"]] == [0, 1, 0, 1]
    values = [row["accuracy"] for row in found["runs"][:2]]
    whole, failed = found["means"]
    assert (whole["runs"], whole["failed"], failed["runs"], failed["failed"]) == (2, 0, 0, 2)
    assert whole["accuracy"] == pytest.approx(statistics.fmean(values))
    assert whole["accuracy_deviation"] == pytest.approx(statistics.stdev(values)) and values[0] != values[1]
    assert failed["accuracy"] is None and failed["spec.data.inputShape"] == [64]
    with (tmp_path / "s" / "means.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["accuracy_deviation"] for line in lines] == [str(whole["accuracy_deviation"]), ""]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("spec.x=0.01,1e-3", (0.01, 0.001)),
        ("spec.x=a, b", ("a", "b")),
        (
            "spec.x={name: fedavg},{name: fedprox, config: {mu: 1}}",
            ({"name": "fedavg"}, {"name": "fedprox", "config": {"mu": 1}}),
        ),
        ('spec.x="a,b",null', ("a,b", None)),
        ("spec.x=[1, 2],[3]", ([1, 2], [3])),
        ("spec.x=a=b", ("a=b",)),
    ],
)
def test_values_are_read_as_in_a_manifest(text: str, values: tuple[Any, ...]) -> None:
    assert parse_setting(text) == Setting("spec.x", values)


def test_a_field_is_named_by_as_much_of_its_path_as_tells_it_apart() -> None:
    paths = ["spec.method.name", "spec.model.name", "spec.training.rounds"]
    assert list(short_names(paths).values()) == ["method.name", "model.name", "rounds"]


def test_what_the_manifest_leaves_out_and_entries_of_lists_can_be_set(manifest: Path) -> None:
    settings = [
        Setting("spec.output.tensorboard", (True,)),
        Setting("spec.aggregator.datasets[0].name", ("test",)),
    ]
    (point,) = grid(fedsilo.load_manifest(manifest), settings, 1)
    output = point.manifest.job.spec.output
    assert output is not None and output.tensorboard


FIELD = "write a field of the job from spec on, such as spec.training.optimizer.learningRate"
AS_YAML = "write values as in YAML, with commas between them, and those with commas or brackets in quotes"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--set", "spec.training.rounds"],
            "--set \"spec.training.rounds\": has no '='; write FIELD=VALUE,VALUE",
        ),
        (
            ["--set", "spec.training.rounds="],
            "--set spec.training.rounds: has no value; write FIELD=VALUE,VALUE",
        ),
        (
            ["--set", "spec.training.rounds=1,]2"],
            f'--set spec.training.rounds: "1,]2": cannot be read; {AS_YAML}',
        ),
        (["--set", "training.rounds=1"], f'--set "training.rounds": is no field of a job; {FIELD}'),
        (["--set", "spec..rounds=1"], f'--set "spec..rounds": is no field of a job; {FIELD}'),
        (
            ["--set", "spec.training.seed=1,2"],
            "--set spec.training.seed: is what --seeds is for; use --seeds N, from the manifest's on",
        ),
        (
            ["--set", "spec.training.rounds=1", "--set", "spec.training.rounds=2"],
            "--set spec.training.rounds: is given twice; write all of its values in one",
        ),
        (
            ["--set", "spec.training.rounds=1,1"],
            "rounds=1: is the same job as rounds=1; leave one of them out",
        ),
        (
            ["--set", "spec.training.rounds=many"],
            '--set: spec.training.rounds: "many": is a string, not a whole number; write a whole number without quotes',
        ),
        (
            ["--set", "spec.method.config.mu=1"],
            "--set: spec.method.config.mu: 1: is not a known field; remove it",
        ),
        (
            ["--set", "spec.aggregator.datasets[1].name=x"],
            "--set spec.aggregator.datasets[1].name: [1]: the manifest has no such list entry; write one that is there",
        ),
        (
            ["--set", "spec.model.name.x=1"],
            '--set spec.model.name.x: x: is below "mlp", which is no mapping; write a field that can be there',
        ),
        (["--seeds", "10001"], "the grid has 10,001 runs; give fewer values or seeds, for at most 10,000"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    options: list[str], line: str, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "-f", str(manifest), "--workdir", str(tmp_path / "sweep"), *options]) == 2
    assert capsys.readouterr().err.splitlines() == [f"fedsilo: {line}"]
    assert not (tmp_path / "sweep").exists()
    assert MAX_RUNS == 10_000


def test_without_matplotlib_nothing_runs(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["sweep", "-f", str(manifest), "--workdir", str(tmp_path / "sweep")]) == 2
    assert capsys.readouterr().err == "fedsilo: a sweep ends with a plot: pip install 'fedsilo[plots]'\n"
    assert not (tmp_path / "sweep").exists()


def test_a_killed_sweep_goes_on_and_ends_as_an_undisturbed_one(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = fedsilo.sweep(manifest, RATES, tmp_path / "undisturbed", display=False)
    killed = tmp_path / "killed"
    if (child := os.fork()) == 0:
        monkeypatch.setattr("fedsilo.local.sweep.runs.run_in_process", killed_at_the_end_of_the_second)
        fedsilo.sweep(manifest, RATES, killed, display=False)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    runs = SweepDirectory(killed)
    assert (runs.run(2) / "aggregator" / "history.jsonl").exists() and not (
        runs.run(2) / "outcome.json"
    ).exists()
    first = (runs.run(1) / "outcome.json").stat().st_mtime_ns
    with pytest.raises(fedsilo.WorkdirConflict, match="holds this sweep already; add --resume"):
        fedsilo.sweep(manifest, RATES, killed)
    with pytest.raises(fedsilo.WorkdirConflict, match="holds another sweep"):
        fedsilo.sweep(manifest, RATES, killed, seeds=2, resume=True)
    resumed = fedsilo.sweep(manifest, RATES, killed, resume=True, display=False)
    assert (runs.run(1) / "outcome.json").stat().st_mtime_ns == first
    assert timeless(resumed.rows()) == timeless(undisturbed.rows())
    assert resumed.plot.read_bytes() == undisturbed.plot.read_bytes()


def killed_at_the_end_of_the_second(manifest: fedsilo.JobManifest, workdir: RunDirectory, *rest: Any) -> Any:
    """The process ends once the run has computed its model, and before its result is where the user looks."""
    with pytest.MonkeyPatch.context() as patch:
        if workdir.root.name == "002":
            patch.setattr(RunDirectory, "collect", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return run_in_process(manifest, workdir, *rest)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_run_is_that_of_a_manifest_with_these_values_and_a_failed_one_ends_nothing(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", "spec.model.config.hidden=[16],[8]", "--set", "spec.data.inputShape=[1, 8, 8],[64]"]
    directory = tmp_path / "sweep"
    assert main(["sweep", "-f", str(manifest), "--workdir", str(directory), *options, "--json"]) == 3
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["failure"] for row in rows] == ["", "DataInvalid", "", "DataInvalid"]
    smaller = write(
        tmp_path / "same.yaml",
        silos("north", "east"),
        training={"seed": 7},
        model={"config": {"hidden": [8]}},
    )
    alone = fedsilo.simulate(smaller, tmp_path / "alone", display=False)
    model = directory / "runs" / "003" / "model.safetensors"
    assert model.read_bytes() == alone.model_path.read_bytes()
    assert rows[2]["accuracy"] == alone.metrics["accuracy"]
    with (directory / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["spec.model.config.hidden"] for line in lines] == ["[16]", "[16]", "[8]", "[8]"]
    with (directory / "rounds.csv").open() as file:
        assert [(line["run"], line["round"]) for line in csv.DictReader(file)] == [
            ("1", "1"),
            ("1", "2"),
            ("3", "1"),
            ("3", "2"),
        ]
    assert main(["sweep", "-f", str(manifest), "--workdir", str(directory), *options, "--resume"]) == 3
    said = capsys.readouterr().out.splitlines()
    assert "run 1/4: hidden=[16], inputShape=[1, 8, 8], seed 7: complete already" in said
    table = said[-6:]
    assert table[0].split() == ["hidden", "inputShape", "runs", "accuracy", "loss", "seconds"]
    assert table[2].split() == ["[16]", "[64]", "0", "of", "1", "-", "-", "-"]
    assert table[-1] == f"plot  {directory / 'curves.svg'}"


def test_the_plot_has_a_line_for_each_value_in_each_metric(manifest: Path, tmp_path: Path) -> None:
    result = fedsilo.sweep(
        manifest, RATES | {"spec.training.rounds": [1]}, tmp_path / "sweep", seeds=2, display=False
    )
    plot = result.plot.read_text()
    for text in ("accuracy", "loss", "round"):
        assert f">{text}<" in plot
    # The only number of rounds tells nothing apart.
    assert plot.count(">learning rate 0.01<") == plot.count(">learning rate 0.1<") == 2
    assert "±" in repr(result) and repr(result).splitlines()[0].split()[:2] == ["learningRate", "rounds"]


def test_a_damaged_outcome_is_named(manifest: Path, tmp_path: Path) -> None:
    fedsilo.sweep(manifest, {}, tmp_path / "sweep", display=False)
    outcome = tmp_path / "sweep" / "runs" / "001" / "outcome.json"
    outcome.write_bytes(outcome.read_bytes().replace(b"Succeeded", b"Succeedee"))
    with pytest.raises(fedsilo.WorkdirConflict, match=r"outcome\.json: .*remove it, and the run is repeated"):
        fedsilo.sweep(manifest, {}, tmp_path / "sweep", resume=True, display=False)


def test_a_directory_of_something_else_stays_as_it_is(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    for directory, resume, what in (
        (tmp_path / "notes", False, "is not empty and holds no sweep"),
        (tmp_path / "notes", True, "holds no sweep to resume"),
        (manifest, False, "is not a directory"),
    ):
        with pytest.raises(fedsilo.WorkdirConflict, match=what):
            fedsilo.sweep(manifest, {}, directory, resume=resume)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["a.txt"]
