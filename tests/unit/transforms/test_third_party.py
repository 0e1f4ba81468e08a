"""A transform of a package outside of fedsilo: installed, found by its entry point, and run as any job runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsilo.cli.main import main
from fedsilo.transforms.third_party import registry
from tests.installed import install
from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "own-transform"
FEDSILO = [sys.executable, "-m", "fedsilo.cli.main"]
ALLOW = ["--allow-import", "signs"]


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed."""
    return install(EXAMPLE, tmp_path_factory.mktemp("packages"))


@pytest.fixture
def registered_package(installed_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets this process find the package, for the length of a test."""
    monkeypatch.syspath_prepend(installed_package)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()
    sys.modules.pop("signs", None)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's, with fewer rounds."""
    return write_job(tmp_path_factory.mktemp("manifest"))


def write_job(folder: Path, **changes: Any) -> Path:
    silos, job = yaml.safe_load_all((EXAMPLE / "digits.yaml").read_text())
    job["spec"]["training"]["rounds"] = 2
    job["spec"] |= changes
    (folder / "digits.yaml").write_text(yaml.safe_dump_all([silos, job]))
    return folder / "digits.yaml"


def run_fedsilo(installed: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command as a user types it, in processes that find the package for themselves."""
    where = {"PYTHONPATH": f"{installed}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [*FEDSILO, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | where,
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_it_is_eighty_lines_at_most_and_no_file_of_fedsilo_knows_it() -> None:
    (code,) = EXAMPLE.glob("*.py")
    assert len(code.read_text().splitlines()) <= 80
    folders = ("fedsilo", "operator", "aggregator", "silo-agent")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert not [
        path for path in sources if re.search(r"own-transform|import signs|Signs\(", path.read_text())
    ]


@pytest.fixture(scope="module")
def processes(installed_package: Path, manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with real processes."""
    folder = tmp_path_factory.mktemp("processes") / "run"
    ran = run_fedsilo(installed_package, "run", "-f", manifest, "--json", "--workdir", folder)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.usefixtures("registered_package")
def test_simulation_processes_and_replay_give_the_same_bytes(
    manifest: Path, processes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def simulate(path: Path, folder: Path) -> bytes:
        assert main(["run", "-f", str(path), "--in-process", "--workdir", str(folder)]) == 0
        return (folder / "model.safetensors").read_bytes()

    model = (processes / "model.safetensors").read_bytes()
    assert simulate(manifest, tmp_path / "simulated") == model
    capsys.readouterr()
    assert main(["verify", str(processes), "--replay", *ALLOW]) == 0
    said = capsys.readouterr().out
    assert "replayed: the kept updates fold to every state of the chain and to this model" in said
    assert simulate(write_job(tmp_path, transforms=None), tmp_path / "plain") != model


@pytest.mark.usefixtures("registered_package")
def test_what_leaves_is_known_to_the_byte_before_a_round(
    manifest: Path, processes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["methods", "fedavg", "-f", str(manifest), *ALLOW]) == 0
    (train,) = [line.split() for line in capsys.readouterr().out.splitlines() if "train      train" in line]
    audits = [path.read_text() for path in (processes / "silos").glob("*/audit/log.jsonl")]
    # 4,810 numbers in four tensors: a bit of each, and four lengths.
    assert train[3] == "618"
    assert len(audits) == 4
    assert all('"kinds": {"model": {"blocks": 8, "bytes": 618}}' in audit for audit in audits)


def test_where_it_is_not_installed_nothing_runs_and_nothing_is_verified(
    manifest: Path, processes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = 'spec.transforms[0].name: "signs": is not the name of a transform that is installed here; install '
    for arguments in (["validate", "-f", manifest], ["run", "-f", manifest], ["verify", processes]):
        assert main([str(argument) for argument in arguments]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.usefixtures("registered_package")
def test_its_manifest_is_valid_and_says_what_is_sent(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-f", str(manifest), *ALLOW]) == 0
    assert "\n  sends   what signs makes of models\n" in capsys.readouterr().out


@pytest.mark.usefixtures("registered_package")
def test_a_manifest_alone_does_not_import_it(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("signs", None)
    assert main(["validate", "-f", str(manifest)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedsilo: {manifest}: spec.transforms: 'signs': would run signs:Signs, of ")
    assert "signs" not in sys.modules


@pytest.mark.usefixtures("registered_package")
def test_its_settings_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = write_job(tmp_path, transforms=[{"name": "signs", "config": {"feedbak": False}}])
    assert main(["validate", "-f", str(wrong), *ALLOW]) == 2
    said = capsys.readouterr().err
    assert "spec.transforms[0].config.feedbak: false: is not a known field; did you mean feedback?" in said


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--in-process"], id="simulated"),
        pytest.param([], id="processes", marks=pytest.mark.thorough),
    ],
)
def test_a_silo_that_has_not_named_it_lets_nothing_leave(
    installed_package: Path, tmp_path: Path, options: list[str]
) -> None:
    silos, job = yaml.safe_load_all(write_job(tmp_path).read_text())
    del silos["spec"]["policy"]
    (tmp_path / "digits.yaml").write_text(yaml.safe_dump_all([silos, job]))
    folder = tmp_path / "run"
    ran = run_fedsilo(installed_package, "run", "-f", tmp_path / "digits.yaml", "--workdir", folder, *options)
    assert ran.returncode != 0
    assert (
        "policy.transforms allows none, not signs; ask the institution to allow it" in ran.stdout + ran.stderr
    )
    assert not list(folder.rglob("*.update"))
