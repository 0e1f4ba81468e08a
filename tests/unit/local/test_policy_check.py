"""`fedsilo validate` holds the job against the policies of the silos in the same manifest, as their guards would."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.cli.main import main
from tests.unit.api.bad_manifests import Edit
from tests.unit.api.manifests import edited_manifest

NORTH = '- {name: digits, loader: "sklearn:digits", config: {split: train}}\n'
CREFF: Edit = ("name: fedavg", "name: creff")
REFUSES = (
    "policy.payloadKinds does not allow averaged_gradients, which method creff sends; use a method that sends only "
    "what the policy allows, or ask the institution to allow it"
)


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_validate(capsys: pytest.CaptureFixture[str], *edits: Edit) -> tuple[int, list[str], list[str]]:
    Path("job.yaml").write_text(edited_manifest(*edits))
    code = main(["validate", "-f", "job.yaml"])
    streams = capsys.readouterr()
    return code, streams.out.splitlines(), streams.err.splitlines()


def policy(text: str) -> Edit:
    """Silo manifest of north with this policy."""
    return (NORTH, f"{NORTH}  policy: {text}\n")


def test_a_silo_that_would_refuse_is_named_where_the_others_suffice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run_validate(capsys, CREFF)
    assert (code, err) == (0, [])
    assert [line for line in out if "warning" in line] == [f"  warning silo west: {REFUSES}"]


def test_too_few_silos_for_a_round_are_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_validate(capsys, CREFF, policy("{payloadKinds: [model]}"))
    assert (code, out) == (5, [])
    assert err == [f"fedsilo: job.yaml: silos west, north: {REFUSES}"]


def test_each_field_of_a_policy_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_validate(
        capsys, policy("{methods: [scaffold], maxRounds: 3, notAfter: 2020-01-01T00:00:00Z}")
    )
    assert code == 0
    assert [line.split(";")[0] for line in out if "warning" in line] == [
        "  warning silo north: policy.methods allows scaffold, not fedavg",
        "  warning silo north: policy.maxRounds is 3, the job has 10 rounds",
        "  warning silo north: policy.notAfter is 2020-01-01T00:00:00Z, which is over",
    ]
