"""Exported models give the same outputs without fedsilo or the job's package; what cannot be exported is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsilo
from fedsilo.cli.main import main
from tests.integration.local.manifest import silo, silos, write
from tests.unit.learning.test_devices import restored_settings

__all__ = ["restored_settings"]

NETWORKS = "tests.unit.local.exportable"

IN_ANOTHER_PROGRAM = """
import sys
import numpy, onnxruntime
inputs = numpy.load(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1])
numpy.save(sys.argv[3], session.run(["outputs"], {"inputs": inputs})[0])
assert not [name for name in sys.modules if name.split(".")[0] in ("fedsilo", "torch", "tests")]
print(session.get_modelmeta().custom_metadata_map["fedsilo"])
"""


@dataclass(frozen=True)
class Job:
    """A complete job of a network of the tests' own."""

    manifest: Path
    model: Path


@pytest.fixture
def job(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    restored_settings: Iterator[None],
    monkeypatch: pytest.MonkeyPatch,
) -> Job:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    name = getattr(request, "param", "network")
    manifest = write(
        tmp_path / "digits.yaml",
        silos("north"),
        model={"name": f"python:{NETWORKS}:{name}", "config": {}},
        training={"rounds": 1},
    )
    return Job(manifest, fedsilo.simulate(manifest, tmp_path / "run", display=False).model_path)


@pytest.mark.thorough
def test_the_files_give_the_models_outputs_and_need_nothing_of_it(job: Job, tmp_path: Path) -> None:
    onnx, torchscript = tmp_path / "model.onnx", tmp_path / "model.pt"
    files = fedsilo.export(
        job.model, job.manifest, onnx=onnx, torchscript=torchscript, allow_imports=[NETWORKS]
    )
    assert [(file.path, file.format, file.examples) for file in files] == [
        (onnx, "ONNX", 256),
        (torchscript, "TorchScript", 256),
    ]
    for file in files:
        assert file.sha256 == hashlib.sha256(file.path.read_bytes()).hexdigest()
        assert file.difference < 1e-5
    inputs = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    with torch.no_grad():
        expected = fedsilo.load_model(job.model, allow_imports=[NETWORKS])(torch.from_numpy(inputs)).numpy()
    np.save(tmp_path / "inputs.npy", inputs)
    arguments = [str(onnx), str(tmp_path / "inputs.npy"), str(tmp_path / "outputs.npy")]
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROGRAM, *arguments], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), expected, atol=1e-5)
    extra = {"fedsilo.json": ""}
    with pytest.MonkeyPatch.context() as patch, pytest.warns(DeprecationWarning):
        patch.setitem(sys.modules, NETWORKS, None)
        load: Callable[..., Callable[[torch.Tensor], torch.Tensor]] = torch.jit.load
        loaded = load(torchscript, _extra_files=extra)
        np.testing.assert_allclose(loaded(torch.from_numpy(inputs)).detach().numpy(), expected, atol=1e-6)
    assert b".py" not in onnx.read_bytes(), "where on this machine an operation comes from"
    told = json.loads(job.model.with_suffix(".json").read_text())
    del told["updates"]
    assert json.loads(done.stdout) == json.loads(extra["fedsilo.json"]) == told
    assert told["sha256"] == hashlib.sha256(job.model.read_bytes()).hexdigest()


def test_preprocessing_and_names_of_classes_are_in_the_file(
    tmp_path: Path, restored_settings: Iterator[None]
) -> None:
    random = np.random.default_rng(0)
    raw = random.normal(1000, 50, (60, 6)).astype(np.float32)
    labels = (raw[:, 0] > 1000).astype(np.int64)
    raw[::7, 1] = np.nan
    np.savez(tmp_path / "table.npz", images=raw, labels=labels, classes=np.array(["low", "high"]))
    dataset = {"loader": "npz", "config": {"path": "table.npz"}}
    manifest = write(
        tmp_path / "table.yaml",
        [silo("north", dataset, payloadKinds=["model", "feature_statistics"])],
        data={
            "classes": ["low", "high"],
            "inputShape": [6],
            "preprocessing": {"standardise": True, "impute": "mean"},
        },
        training={"rounds": 1},
        evaluation={"testDataset": None},
        aggregator={},
    )
    model = fedsilo.simulate(manifest, tmp_path / "run", display=False).model_path
    file = tmp_path / "model.pt"
    fedsilo.export(model, manifest, torchscript=file)
    extra = {"fedsilo.json": ""}
    with pytest.warns(DeprecationWarning):
        load: Callable[..., Callable[[torch.Tensor], torch.Tensor]] = torch.jit.load
        outputs = load(file, _extra_files=extra)(torch.from_numpy(raw))
    assert torch.isfinite(outputs).all()
    assert torch.equal(outputs, fedsilo.load_model(model)(torch.from_numpy(raw)))
    assert json.loads(extra["fedsilo.json"])["data"]["classes"] == ["low", "high"]


@pytest.mark.parametrize("job", ["by_batch_size"], indirect=True)
def test_a_file_that_gives_other_outputs_is_not_written(job: Job, tmp_path: Path) -> None:
    with pytest.raises(
        fedsilo.MethodError, match=r"as TorchScript its outputs differ .* nothing was written: change"
    ):
        fedsilo.export(job.model, job.manifest, torchscript=tmp_path / "model.pt", allow_imports=[NETWORKS])
    assert not list(tmp_path.glob("*.pt")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("job", ["by_data"], indirect=True)
def test_what_the_exporter_cannot_follow_is_an_error_in_one_line(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "export",
        "--model",
        str(job.model),
        "-f",
        str(job.manifest),
        "--onnx",
        str(tmp_path / "model.onnx"),
        "--allow-import",
        NETWORKS,
    ]
    assert main(arguments) == 7
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedsilo: model {job.model}: cannot be exported to ONNX: GuardOnData")
    assert line.endswith("; change what the exporter cannot follow in the architecture, or try --torchscript")
    assert not list(tmp_path.glob("*.onnx"))


def test_what_is_wrong_is_said_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write(tmp_path / "digits.yaml", silos("north"))
    found = importlib.util.find_spec

    def without_onnxruntime(name: str) -> ModuleSpec | None:
        return None if name == "onnxruntime" else found(name)

    for options, line in (
        ([], "no file is named; give one with --onnx or --torchscript"),
        (["--onnx", "nowhere/m"], "nowhere: there is no such directory; make it first"),
        (["--onnx", str(manifest)], f"{manifest}: is there already; remove it or name another file"),
        (["--onnx", "m", "--torchscript", "m"], "m: is named for both formats; give each a file of its own"),
        (
            ["--torchscript", "m"],
            "model none.safetensors: there is no such file; give the path of a model.safetensors",
        ),
        (["--onnx", "m"], "--onnx: needs onnxruntime; pip install 'fedsilo[export]'"),
    ):
        if line.startswith("--onnx"):
            monkeypatch.setattr("fedsilo.local.export.find_spec", without_onnxruntime)
        assert main(["export", "--model", "none.safetensors", "-f", str(manifest), *options]) == 2
        assert capsys.readouterr().err == f"fedsilo: {line}\n"
