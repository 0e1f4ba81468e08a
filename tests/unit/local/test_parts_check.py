"""`fedsilo validate` and `check` hold the patterns of `spec.model.parameters` against the model's own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.cli.main import main
from fedsilo.local import job_model
from tests.unit.api.manifests import edited_manifest

JOB = "fedsilo: job.yaml: document 5 (FederatedJob digits): spec.model.parameters"
TIED_NETWORK = "{name: 'python:tests.unit.silo.networks:tied_network', config: {}"


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(parameters: str, model: str = "{name: lenet, config: {padding: 2}") -> None:
    Path("job.yaml").write_text(
        edited_manifest(
            ("{name: lenet, config: {padding: 2}", f"{model}, parameters: {parameters}"),
            (", testDataset: digits-test", ""),
            (
                "inputShape: [1, 8, 8]",
                "inputShape: [64]" if model == TIED_NETWORK else "inputShape: [1, 8, 8]",
            ),
        )
    )


def error_lines(capsys: pytest.CaptureFixture[str], command: str = "validate") -> list[str]:
    assert main([command, "-f", "job.yaml", "--allow-import", "tests.unit.silo.networks"]) == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("command", ["validate", "check"])
def test_all_patterns_that_match_nothing_are_said_at_once(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("{frozen: ['encodr.*', 'encoder.*'], local: ['clasifier.*']}")
    assert error_lines(capsys, command) == [
        f'{JOB}.frozen[0]: "encodr.*": matches no tensor of the model; the nearest of its 6 is encoder.3.bias',
        f'{JOB}.local[0]: "clasifier.*": matches no tensor of the model; the nearest of its 6 is classifier.bias',
    ]


def test_a_division_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    write("{frozen: ['encoder.*'], local: ['*.weight']}")
    assert error_lines(capsys) == [
        f"{JOB}: tensor 'encoder.0.weight' is named in frozen and in local; narrow the patterns"
    ]
    write("{frozen: ['*']}")
    assert error_lines(capsys) == [
        f"{JOB}: no parameter is shared, so that silos would learn nothing from each other; leave some to shared"
    ]
    write("{frozen: ['encoder.0.*']}", TIED_NETWORK)
    (line, *_) = error_lines(capsys)
    assert line.startswith(
        f"{JOB}: 'encoder.0.weight' and 'encoder.1.weight' are one tensor and stand in two "
    )


@pytest.mark.parametrize(
    "model",
    [
        "{name: lenet, config: {padding: 2}",
        TIED_NETWORK,
        "{name: 'python:no_such_package:network', config: {}",
    ],
)
def test_what_fits_or_cannot_be_built_here_is_valid(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("{frozen: ['encoder.*']}", model)
    assert main(["validate", "-f", "job.yaml"]) == 0
    assert "job.yaml: valid" in capsys.readouterr().out


def test_without_pytorch_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_model, "find_spec", lambda _name: None)
    write("{frozen: ['encodr.*']}")
    assert main(["validate", "-f", "job.yaml"]) == 0
    assert "job.yaml: valid" in capsys.readouterr().out


def test_a_model_that_may_not_be_imported_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    write("{frozen: ['encodr.*']}", TIED_NETWORK)
    assert main(["validate", "-f", "job.yaml"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  parts   ")]
    assert line.startswith("  parts   not compared with the model: job.yaml: spec.model.name: ")
    assert "add --allow-import tests.unit.silo.networks:tied_network" in line
    assert main(["check", "-f", "job.yaml"]) == 2
    assert "would run tests.unit.silo.networks:tied_network" in capsys.readouterr().err
