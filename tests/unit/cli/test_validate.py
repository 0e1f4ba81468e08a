"""`fedsilo validate` looks at all that it is given, and no option of one value loses another one in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.cli import validate
from fedsilo.cli.main import main
from fedsilo.errors import DataInvalid, FedsiloError, ManifestInvalid, MethodError, PolicyRefused
from tests.unit.api.manifests import DIGITS, edited_manifest

MISSPELT = edited_manifest(("localEpochs: 2", "localEpoch: 2"))
REFUSED_JOB = edited_manifest(
    ("jobNamespaces: [federation]", "jobNamespaces: [other]"), ("minSilos: 2", "minSilos: 3")
)
"""A job for which a silo's policy leaves no quorum."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(MISSPELT)
    Path("good.yml").write_text(DIGITS)
    Path("notes.txt").write_text("no manifest")
    return tmp_path


@pytest.mark.parametrize(
    "named",
    [
        ["-f", "bad.yaml", "-f", "good.yml"],
        ["-f", "good.yml", "bad.yaml"],
        ["-f", "."],
        ["-f", "*.y*ml"],
        ["-f", "good.yml", "--file", "bad.yaml"],
    ],
)
def test_every_file_counts(named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *named]) == 2

    said = capsys.readouterr()
    assert said.out.splitlines()[0].endswith("good.yml: valid")
    assert "bad.yaml: document 5 (FederatedJob digits): spec.training.localEpoch: 2" in said.err
    assert len(said.err.splitlines()) == 1


def test_all_faults_of_all_files_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    Path("torn.yaml").write_text("a: [\n")

    assert main(["validate", "-f", "bad.yaml", "-f", "absent.yaml", "-f", "torn.yaml"]) == 2

    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "bad.yaml",
        "absent.yaml",
        "torn.yaml",
    ]


def test_a_folder_without_manifests_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()

    assert main(["validate", "-f", "empty"]) == 2

    assert "empty: holds no manifest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("a" * 300 + ".yaml", "cannot be read (File name too long)"),
        ("**.yaml", "is no file, and no pattern of names"),
        ("a/**.yaml", "is no file, and no pattern of names"),
    ],
)
def test_a_name_that_no_file_has_is_a_fault(
    named: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-f", named, "-f", "good.yml"]) == 2

    said = capsys.readouterr()
    assert said.out.splitlines()[0].endswith("good.yml: valid")
    assert f"{named}: {problem}" in said.err and "; name a file" in said.err


def test_what_a_policy_refuses_is_told_of_beside_the_faults(capsys: pytest.CaptureFixture[str]) -> None:
    Path("both.yaml").write_text(REFUSED_JOB.replace("localEpochs: 2", "localEpoch: 2"))
    Path("refused.yaml").write_text(REFUSED_JOB)

    assert main(["validate", "-f", "both.yaml"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [("localEpoch" in line, "policy.jobNamespaces" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
    assert main(["validate", "-f", "refused.yaml"]) == 5
    assert main(["validate", "-f", "refused.yaml", "-f", "bad.yaml"]) == 2


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((MethodError, MethodError), 7),
        ((DataInvalid, DataInvalid), 3),
        ((PolicyRefused, PolicyRefused), 5),
        ((MethodError, PolicyRefused), 2),
        ((ManifestInvalid, MethodError), 2),
    ],
)
def test_several_files_end_with_the_exit_code_that_each_has(
    kinds: tuple[type[FedsiloError], ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {Path(f"{place}.yaml"): kind("is wrong; mend it") for place, kind in enumerate(kinds)}

    def report(file: Path) -> str:
        if file in wrong:
            raise wrong[file]
        return "valid"

    monkeypatch.setattr(validate, "_report", report)
    assert main(["validate", "-f", "good.yml", *map(str, wrong)]) == code


@pytest.mark.parametrize("command", ["check", "sweep"])
def test_an_option_of_one_value_is_given_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-f", "bad.yaml", "-f", "good.yml"]) == 2

    assert "-f/--file: is given twice" in capsys.readouterr().err


def test_objects_of_other_apis_are_left_to_kubectl_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("mixed.yaml")
    other = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\n"
    file.write_text(edited_manifest() + other)
    assert main(["validate", "-f", str(file)]) == 0
    assert "not fedsilo's, so that only kubectl reads them: document " in capsys.readouterr().out
    file.write_text(
        edited_manifest() + other.replace("v1\nkind: ConfigMap", "fedsilo.io/v1alpha1\nkind: Sillo")
    )
    assert main(["validate", "-f", str(file)]) == 2
    assert "did you mean Silo?" in capsys.readouterr().err
