"""Features of a job meet in real processes: the few jobs that cover all permitted pairs, against simulation and replay.

That each pair by itself gives the same bytes is tried without processes, in `tests/unit/transforms/test_pairs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fedsilo.api.loading import JobManifest
from fedsilo.files.json_files import read_with_digest
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods.schedule import participants
from fedsilo.silo import secret
from fedsilo.simulation.simulate import simulate
from fedsilo.transforms.plan import JobPlan
from tests.feature_pairs import PERMITTED_PAIRS, covering, documents_in, manifest_in, name_of
from tests.integration.local.conftest import selected_values
from tests.integration.local.runs import PATIENCE_SECONDS, end, start
from tests.unit.verification.chains import replay_directory

JOBS = {f"pairs-{number}": chosen for number, chosen in enumerate(covering(), start=1)}

QUICK_JOBS = next(
    name for name, chosen in JOBS.items() if {"secure", "standardised"} <= set(name_of(chosen).split("."))
)
"""The job that `make test` runs."""


@dataclass(frozen=True)
class FinishedJobs:
    """Jobs that one command has run, by name.

    :param root: directory of their data and, in `runs`, of what they left.
    """

    root: Path
    manifests: Mapping[str, JobManifest]

    def workdir(self, name: str) -> RunDirectory:
        """What a job left."""
        return RunDirectory(self.root / "runs" / name)


@pytest.fixture(scope="module")
def finished_jobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedJobs:
    """All that selected tests look at, whose processes are forked from one."""
    root = tmp_path_factory.mktemp("pairs")
    manifests = {name: manifest_in(root, JOBS[name], name) for name in selected_values(request, "name")}
    for manifest in manifests.values():
        Path(manifest.file).write_text(yaml.safe_dump_all(documents_in(manifest)))
    first, *others = (Path(manifest.file) for manifest in manifests.values())
    more = [option for path in others for option in ("-f", str(path))]
    place = (
        root / "runs" if others else root / "runs" / next(iter(manifests))
    )  # one job alone gets no folder in it
    ended = end(start(first, place, *more), place, PATIENCE_SECONDS * 3)
    assert ended.code == 0, ended.out + ended.err
    return FinishedJobs(root, manifests)


def test_every_permitted_pair_occurs_in_a_job_of_as_many_features_as_go_together() -> None:
    assert all(any(pair <= chosen for chosen in JOBS.values()) for pair in PERMITTED_PAIRS)
    assert min(map(len, JOBS.values())) > 4
    assert len(JOBS) < len(PERMITTED_PAIRS) / 8


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == QUICK_JOBS else pytest.mark.thorough) for name in JOBS],
    ids=lambda name: name_of(JOBS[name]),
)
def test_processes_give_the_bytes_of_simulation_and_replay(
    finished_jobs: FinishedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    manifest, workdir = finished_jobs.manifests[name], finished_jobs.workdir(name)
    secrets = secrets_of(manifest, workdir)
    monkeypatch.setattr(secret, "draw", lambda: next(secrets))
    simulation = simulate(manifest, finished_jobs.root, tmp_path / "simulated")
    assert next(secrets, None) is None, "a silo has drawn a secret in its process and none in the simulation"
    assert simulation.result is not None
    assert simulation.result.path.read_bytes() == (workdir.root / "model.safetensors").read_bytes()
    replay_directory(workdir.root)


def secrets_of(manifest: JobManifest, workdir: RunDirectory) -> Iterator[bytes]:
    """What silos have drawn from no seed of the job, in the order in which a simulation draws it."""
    spec = manifest.job.spec
    silos = {str(silo): silo.metadata.name for silo in manifest.silos}
    asked = (participants(spec, exchange, tuple(silos)) for exchange in JobPlan.of(spec).exchanges)
    for silo in dict.fromkeys(silo for each in asked for silo in each):
        volume = workdir.volume(silos[silo])
        for file in (volume.secret, volume.guard_secret):
            if (kept := read_with_digest(file)) is not None:
                yield bytes.fromhex(kept["secret"])
