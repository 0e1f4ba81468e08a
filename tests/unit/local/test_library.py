"""Federations as function calls, in memory: what they return, show, raise and leave alone."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedsilo
from fedsilo.engine.result import write_result
from fedsilo.local.history import History
from fedsilo.local.library import _error
from tests.integration.local.manifest import python, silo, silos, write
from tests.unit.learning.test_devices import restored_settings

__all__ = ["restored_settings"]

RECORDS = [
    {"round": 1, "samples": {"a/a": 3}, "metrics": {"accuracy": 0.5}, "bytes": {"a/a": 80}, "seconds": 0.25},
    {
        "round": 2,
        "samples": {"a/a": 3, "b/b": 4},
        "bytes": {"a/a": 80, "b/b": 80},
        "training": {"loss": 1 / 3},
    },
]


@pytest.fixture
def manifest(tmp_path: Path, restored_settings: Iterator[None]) -> Path:
    return write(tmp_path / "digits.yaml", silos("north", "east"))


def test_a_simulation_gives_model_history_and_figures(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Any] = []
    handlers = list(logging.getLogger().handlers)
    result = fedsilo.simulate(manifest, tmp_path / "run", on_round=told.append)
    assert [record["round"] for record in told] == [1, 2]
    assert list(result.history) == told
    assert result.metrics == told[-1]["metrics"]
    assert [silo["name"] for silo in result.silos] == ["north", "east"]
    assert result.model_path == tmp_path / "run" / "model.safetensors"
    assert capsys.readouterr().out.splitlines()[1].startswith("round 1/2   accuracy ")
    assert logging.getLogger().handlers == handlers
    scores = fedsilo.evaluate(result.model_path, manifest)
    assert scores["test"] is not None
    assert scores["test"].accuracy == result.metrics["accuracy"]


def test_a_manifest_is_loaded_once_and_may_be_given_as_such(
    manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = fedsilo.load_manifest(str(manifest))
    assert fedsilo.validate(manifest) == []
    fedsilo.simulate(loaded, tmp_path / "run", display=False)
    assert capsys.readouterr().out == ""


def test_what_is_wrong_with_a_manifest_is_listed_and_raised(tmp_path: Path) -> None:
    members = [silo("north", {"loader": "sklearn:digit"})]
    wrong = write(tmp_path / "digits.yaml", members, method={"name": "fedagv"})
    lines = [str(fault) for fault in fedsilo.validate(wrong)]
    assert any("fedagv" in line for line in lines) and any("sklearn:digit" in line for line in lines)
    with pytest.raises(fedsilo.ManifestInvalid) as raised:
        fedsilo.simulate(wrong, tmp_path / "run")
    assert str(raised.value).splitlines() == lines
    assert not (tmp_path / "run").exists()


def test_a_failed_job_is_an_exception(tmp_path: Path, restored_settings: Iterator[None]) -> None:
    manifest = write(tmp_path / "digits.yaml", [*silos("north"), silo("east", {"config": {"split": "none"}})])
    with pytest.raises(fedsilo.ManifestInvalid):
        fedsilo.simulate(manifest, tmp_path / "run", display=False)
    manifest = write(tmp_path / "digits.yaml", [silo("north", python("missing"))])
    with pytest.raises(fedsilo.JobFailed, match="cannot be imported") as raised:
        fedsilo.simulate(manifest, tmp_path / "run", display=False)
    assert (raised.value.reason, raised.value.exit_code) == ("DataInvalid", 4)


def test_a_full_disk_delays_a_simulation(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts: list[str] = []

    def fail_twice(*arguments: Any) -> Any:
        attempts.append("model")
        if len(attempts) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_result(*arguments)

    monkeypatch.setattr("fedsilo.simulation.job.write_result", fail_twice)
    monkeypatch.setattr("fedsilo.local.disk_space.PAUSE_SECONDS", 0.0)
    result = fedsilo.simulate(manifest, tmp_path / "run")
    lines = capsys.readouterr().out.splitlines()
    assert result.model_path.exists()
    assert (
        len([line for line in lines if "the disk is full; the run goes on when there is space" in line]) == 1
    )
    assert len([line for line in lines if "there is space again; the run goes on" in line]) == 1


def test_a_loader_that_ends_the_process_does_not_end_a_simulation_as_if_it_had_succeeded(
    tmp_path: Path, restored_settings: Iterator[None]
) -> None:
    manifest = write(tmp_path / "digits.yaml", [silo("north", python("quit"))])
    with pytest.raises(fedsilo.JobFailed, match="raised SystemExit: 0"):
        fedsilo.simulate(manifest, tmp_path / "run", display=False)


@pytest.mark.parametrize(
    ("reason", "code", "kind"),
    [
        ("QuorumLost", 4, fedsilo.QuorumLost),
        ("DataInvalid", 3, fedsilo.DataInvalid),
        ("DataInvalid", 4, fedsilo.JobFailed),
        ("AggregatorLost", 1, fedsilo.FedsiloError),
    ],
)
def test_errors_are_those_of_reason_and_exit_code(
    reason: str, code: int, kind: type[fedsilo.FedsiloError]
) -> None:
    error = _error(reason, "said", code)
    assert type(error) is kind
    assert (error.reason, error.exit_code, str(error)) == (reason, code, "said")


def test_a_history_prints_as_a_table() -> None:
    history = History(RECORDS)
    assert repr(history).splitlines() == [
        "round  silos  samples  bytes  seconds  accuracy  training loss",
        "    1      1        3     80     0.25       0.5              -",
        "    2      2        7    160        -         -         0.3333",
    ]
    assert (len(history), history[-1], repr(history[:0])) == (2, RECORDS[1], "no completed round")


def test_a_history_is_a_data_frame_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedsilo.FedsiloError, match="needs pandas; pip install pandas"):
        History(RECORDS).to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert History(RECORDS).to_pandas() == History(RECORDS).rows()
