"""What a trainer does before its first task imports nothing that was not imported before the fork, but its method."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def test_a_trainer_opens_its_silo_without_another_import(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    late = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in late if not name.startswith("fedsilo.methods.")] == []
