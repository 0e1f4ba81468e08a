"""A method of a package outside this repository: installed, found by its entry point, validated and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

PLUGIN = ROOT / "tests" / "plugins" / "fedsilo_median"
MANIFEST = ROOT / "tests" / "plugins" / "median.yaml"


def fedsilo(*arguments: str, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would, with further packages on the path."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages) if packages else ""}
    return subprocess.run(
        [sys.executable, "-m", "fedsilo.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed, without any network."""
    folder = tmp_path_factory.mktemp("packages")
    source = folder / "source"
    source.mkdir()
    for path in PLUGIN.iterdir():  # a copy, since building leaves files beside the source
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-cache",
        "--no-deps",
    ]
    command += [
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--target",
        str(folder / "site"),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=120)
    return folder / "site"


def test_its_manifest_is_valid(installed: Path) -> None:
    validated = fedsilo("validate", "-f", str(MANIFEST), packages=installed)
    assert (validated.returncode, validated.stderr) == (0, "")
    assert "method  median" in validated.stdout


def test_its_configuration_and_its_own_rules_are_checked(installed: Path, tmp_path: Path) -> None:
    text = MANIFEST.read_text().replace("{keep: 0.5}", "{kep: 0.5}")
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(text)
    wrong = fedsilo("validate", "-f", str(manifest), packages=installed)
    assert wrong.returncode == 2
    assert "spec.method.config.kep" in wrong.stderr
    manifest.write_text(MANIFEST.read_text().replace(", {namespace: silos, name: c}]", "]"))
    few = fedsilo("validate", "-f", str(manifest), packages=installed)
    assert few.returncode == 2
    assert "spec.silos.refs" in few.stderr
    assert "fewer silos than a median needs" in few.stderr


def test_it_runs(installed: Path, tmp_path: Path) -> None:
    ran = fedsilo(
        "run", "-f", str(MANIFEST), "--json", "--workdir", str(tmp_path / "run"), packages=installed
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["method"], document["rounds"]) == ("median", 2)
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    # Private state came back to the silo half: every silo counts its own rounds.
    assert [json.loads(line)["training"] for line in history] == [{"rounds": 1.0}, {"rounds": 2.0}]


def test_where_it_is_not_installed_the_message_names_the_known_methods() -> None:
    unknown = fedsilo("validate", "-f", str(MANIFEST))
    assert unknown.returncode == 2
    assert "spec.method.name" in unknown.stderr
    assert '"median": is not a known method' in unknown.stderr
    assert "fedavg" in unknown.stderr
