"""A method of a package outside this repository: installed, found by its entry point, validated and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsilo.cli.main import main
from fedsilo.methods import registry
from tests.installed import install
from tests.paths import ROOT

PLUGIN = ROOT / "tests" / "plugins" / "fedsilo_median"
FEDSILO = [sys.executable, "-m", "fedsilo.cli.main"]
ALLOW = ["--allow-import", "fedsilo_median"]
MANIFEST = ROOT / "tests" / "plugins" / "median.yaml"


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed, without any network."""
    return install(PLUGIN, tmp_path_factory.mktemp("packages"))


@pytest.fixture
def registered_package(installed_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets this process find the package, for the length of a test."""
    monkeypatch.syspath_prepend(installed_package)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


@pytest.mark.usefixtures("registered_package")
def test_its_manifest_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", str(MANIFEST), *ALLOW]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "method  median" in said.out


@pytest.mark.usefixtures("registered_package")
def test_its_configuration_and_its_own_rules_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MANIFEST.read_text().replace("{keep: 0.5}", "{kep: 0.5}")
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(text)
    assert main(["validate", "-f", str(manifest), *ALLOW]) == 2
    assert "spec.method.config.kep" in capsys.readouterr().err
    manifest.write_text(MANIFEST.read_text().replace(", {namespace: silos, name: c}]", "]"))
    assert main(["validate", "-f", str(manifest), *ALLOW]) == 2
    said = capsys.readouterr().err
    assert "spec.silos.refs" in said
    assert "fewer silos than a median needs" in said


@pytest.mark.usefixtures("registered_package")
def test_a_manifest_alone_does_not_import_it(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("fedsilo_median", None)
    assert main(["validate", "-f", str(MANIFEST)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedsilo: {MANIFEST}: spec.method.name: 'median': would run fedsilo_median:")
    assert "fedsilo_median" not in sys.modules
    assert main(["methods", "median", "-f", str(MANIFEST)]) == 0


@pytest.mark.thorough
def test_it_runs(installed_package: Path, tmp_path: Path) -> None:
    """The package is run as a user runs it, in processes that find the package for themselves."""
    ran = subprocess.run(
        [*FEDSILO, "run", "-f", str(MANIFEST), "--json", "--workdir", str(tmp_path / "run")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(installed_package)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["method"], document["rounds"]) == ("median", 2)
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    # Private state came back to the silo half: every silo counts its own rounds.
    assert [json.loads(line)["training"] for line in history] == [{"rounds": 1.0}, {"rounds": 2.0}]


def test_where_it_is_not_installed_the_message_says_where_the_known_methods_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["validate", "-f", str(MANIFEST)]) == 2
    said = capsys.readouterr().err
    assert "spec.method.name" in said
    assert '"median": is not a known method' in said
    assert "`fedsilo methods`" in said
