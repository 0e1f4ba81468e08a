"""What a trainer does before its first task imports nothing that was not imported before the fork, but its method."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.job import PrivacySpec
from fedsilo.local.fork_server import ACCOUNTING_MODULES, modules_of_job
from fedsilo.validation import load_manifest
from tests.paths import ROOT

PROGRAM = """
import json, sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from fedsilo.files.json_files import write_with_digest
from fedsilo.local.fork_server import PRELOADED_MODULES
from fedsilo.local.workdir import RunDirectory
from fedsilo.validation import load_manifest

for name in PRELOADED_MODULES:
    import_module(name)
directory, manifest = RunDirectory(Path(sys.argv[1])), load_manifest("examples/quickstart.yaml")
directory.root.mkdir()
directory.write_inputs(manifest, "uid", 1)
volume = directory.volume(manifest.silos[0].metadata.name)
volume.prepare_trainer()
write_with_digest(volume.task, {"step": "finish", "task": "finish", "acknowledged": None})
arguments = ["--agent", f"{volume.root}/agent.json", "--silo", f"{volume.root}/silo.json"]
before = set(sys.modules)
trainer = import_module("fedsilo_agent.trainer.__main__")
assert trainer.main([*arguments, "--volume", str(volume.root)]) == 0
print(json.dumps(sorted(sys.modules.keys() - before)))
"""


NOISE = """
import sys
from importlib import import_module
from fedsilo.local.fork_server import modules_of_job
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import noise_multiplier
from fedsilo.validation import load_manifest

spec = load_manifest("examples/private.yaml").job.spec
for name in modules_of_job(spec):
    import_module(name)
before = set(sys.modules)
noise_multiplier(registry.bind(spec), 300)
print(sorted(name for name in sys.modules.keys() - before if not name.startswith("fedsilo.")))
"""


def test_a_trainer_opens_its_silo_without_another_import(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    late = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in late if not name.startswith("fedsilo.methods.")] == []


def test_a_private_job_finds_its_noise_without_another_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("privacy", "modules"),
    [
        ({}, ()),
        ({"unit": "example", "epsilon": 3.0, "delta": 1e-5}, ACCOUNTING_MODULES),
        ({"unit": "silo", "epsilon": 3.0, "delta": 1e-5, "maxUpdateNorm": 1.0}, ()),
    ],
    ids=["none", "example", "silo"],
)
def test_accounting_is_imported_for_jobs_whose_trainers_add_noise(
    privacy: dict[str, Any], modules: tuple[str, ...]
) -> None:
    document = {"differentialPrivacy": privacy} if privacy else {}
    spec = load_manifest(ROOT / "examples/quickstart.yaml").job.spec
    changed = spec.model_copy(update={"privacy": PrivacySpec.model_validate(document)})
    assert modules_of_job(changed) == modules
