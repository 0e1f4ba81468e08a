"""The device computes what the CPU computes, and twice the same bytes; who has no GPU is told so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import yaml

from benchmarks.gpu.cases import Case, Figures, Setting
from benchmarks.simulation import ROOT, Job, documents, manifest_of
from benchmarks.training import fedsilo, job_of, silo_of
from fedsilo.learning.models import initial_model
from fedsilo.methods.state import Tree
from fedsilo.silo.context import open_context
from fedsilo.simulation.simulate import simulate
from fedsilo.wire import open_blob

MARK = "mark.gpu"
OPTIONS = ("-W", "default", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
"""Plugins are those that the project's settings need; a warning of another version of something is no failure."""
BATCH_EXAMPLES = 32


def cases(setting: Setting) -> Iterator[Case]:
    """Marked tests first, then single trainings, then whole jobs."""
    yield Case("tests that are marked gpu", partial(gpu_test_figures, setting))
    for network in ("lenet", "transformer", *(() if setting.size == "reduced" else ("resnet20",))):
        for precision in ("float32", "bfloat16", "float16"):
            yield Case(f"{network}, {precision}", partial(training_figures, setting, network, precision))
    yield Case("a job of four silos", partial(whole_job, setting))
    yield Case("a trainer without a GPU", refusal_figures)


def gpu_test_figures(setting: Setting) -> Figures:
    """The tests that need a GPU, by pytest; where there is none they are skipped.

    :raises AssertionError: some fail, or are not run though there is one.
    """
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *OPTIONS, *map(str, files)]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # whatever else the machine has installed
    ran = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True)
    found = re.findall(r"(\d+) (passed|failed|skipped|error)", ran.stdout)
    counts = {kind: int(number) for number, kind in found}
    passed, skipped = counts.get("passed", 0), counts.get("skipped", 0)
    if ran.returncode != 0 or (setting.device != "cpu" and (skipped or not passed)):
        print(ran.stdout, ran.stderr, file=sys.stderr)
        named = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
        raise AssertionError(
            f"exit code {ran.returncode}, {passed} passed, {skipped} skipped: "
            f"{', '.join(named) or (ran.stderr or ran.stdout)[-300:]}"
        )
    return {"passed": passed, "skipped": skipped}


def training_figures(setting: Setting, network: str, precision: str) -> Figures:
    """A silo's training on the device, twice, beside the same in float32 on the CPU.

    :raises AssertionError: the same training gives other bytes.
    """
    steps = int(setting.of(20, 10, 2))
    one, other = (change(network, setting.device, precision, steps) for _ in range(2))
    differing = [name for name in one if one[name].tobytes() != other[name].tobytes()]
    assert not differing, f"twice the same training gives other bytes of {', '.join(differing[:3])}"
    reference = on_cpu(network, steps)
    return {"steps": steps, f"{precision} from the CPU": distance(one, reference) / length(reference)}


@cache
def on_cpu(network: str, steps: int) -> Tree:
    """What a silo's training in float32 on the CPU changes."""
    return change(network, "cpu", "float32", steps)


def change(network: str, device: str, precision: str, steps: int) -> Tree:
    """What so many steps of a silo's training change of the weights."""
    spec = job_of(network, device, precision, BATCH_EXAMPLES)
    tree = initial_model(spec)
    context = open_context(spec, silo_of(network, steps * BATCH_EXAMPLES), Path.cwd())
    weights = fedsilo(context, tree, lambda: 0.0).weights
    learned = [name for name in tree if tree[name].dtype.kind == "f"]  # and no counter of batches
    return {name: weights[name].astype(np.float64) - tree[name] for name in learned}


def whole_job(setting: Setting) -> Figures:
    """Two rounds of a job on the device, twice, beside the same on the CPU.

    :raises AssertionError: the same job gives another model.
    """
    samples = int(setting.of(320, 320, 32))
    job = Job(4, 4, 2, samples)
    one, other, reference = (result(job, device) for device in (setting.device, setting.device, "cpu"))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one), (
        "twice the same job gives another model"
    )
    return {"model from the CPU's": distance(one, reference) / length(reference)}


def result(job: Job, device: str) -> Tree:
    """The job's model after its last round, from a simulation on that device."""
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as folder:
        finished = simulate(manifest_of(replace(job, device=device)), Path.cwd(), Path(folder))
        assert finished.result is not None
        with open_blob(finished.result.path) as blob:
            return {name: np.array(array) for name, array in blob.tree().items()}


def refusal_figures() -> Figures:
    """A job with `device: cuda`, in processes that see no GPU: its trainers refuse, and the job says why.

    :raises AssertionError: it does anything else.
    """
    job = Job(2, 2, 2, 32, device="cuda")
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(yaml.safe_dump_all(documents(job)), encoding="utf-8")
        command = [sys.executable, "-m", "fedsilo.cli.main", "run", "-f", str(file), "--json"]
        ran = subprocess.run(
            [*command, "--workdir", str(Path(folder) / "run")],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
    said = ran.stdout + ran.stderr
    assert ran.returncode != 0, "a job with `device: cuda` runs where there is no GPU"
    assert "spec.training.device: 'cuda': PyTorch finds no GPU here" in said, said[-500:]
    assert "Traceback" not in said, said[-500:]
    return {"exit code": ran.returncode}


def distance(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Norm of the difference of all tensors together."""
    return length({name: one[name].astype(np.float64) - other[name] for name in other})


def length(tree: Mapping[str, np.ndarray]) -> float:
    """Norm of all tensors together."""
    return float(np.sqrt(sum(np.square(array.astype(np.float64)).sum() for array in tree.values())))
