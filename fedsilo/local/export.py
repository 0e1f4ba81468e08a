"""A trained model as one file for other programs: ONNX or TorchScript, checked against the original on real examples.

The file holds network, weights and the description of the model; what reads it needs neither fedsilo nor the job's own
package. It has its name only once it was read again and gave the same outputs.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.loading import JobManifest
from fedsilo.api.text import first_line
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.files.durable import publish, temporary_file
from fedsilo.validation import Source, as_manifest

if TYPE_CHECKING:
    from torch import Tensor, nn

EXAMPLES = 256
"""On which the exported model is compared with the original, at most."""

TOLERANCE = 1e-4
"""Largest difference of an output, as a part of the largest output or of 1: other libraries sum in another order."""

DESCRIPTION = "fedsilo"
"""Name of the description in the file: of ONNX's metadata, and, with .json, of TorchScript's extra file."""

PACKAGES = ("onnx", "onnxruntime", "onnxscript")

Run = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class ExportedFile:
    """A file that gives the model's outputs.

    :param format: `ONNX` or `TorchScript`.
    :param sha256: of the file.
    :param examples: on which it was compared with the original.
    :param difference: the largest of an output.
    """

    path: Path
    format: str
    sha256: str
    examples: int
    difference: float


def export(
    model: Path | str,
    manifest: JobManifest | Source,
    *,
    onnx: Path | str | None = None,
    torchscript: Path | str | None = None,
    allow_imports: Collection[str] = (),
) -> list[ExportedFile]:
    """Write a model as ONNX, as TorchScript or as both; input `inputs` (n, *input shape), output `outputs`.

    :param model: `model.safetensors` of a job, or `personal.safetensors` of a silo, and its `.json` beside it.
    :param manifest: it names the architecture, and the data to check the files on; relative paths start from its
        directory.
    :param allow_imports: modules, or `module:attribute`, that the manifest may name.
    :raises ImportNotAllowed: when it names others.
    :raises ManifestInvalid: when manifest, model or one of the new files cannot be used, or a package is missing.
    :raises DataInvalid: when the data cannot be read, or there are none.
    :raises MethodError: a network that cannot be exported, or that gives other outputs then.
    """
    wanted = [
        (name, Path(path))
        for name, path in (("ONNX", onnx), ("TorchScript", torchscript))
        if path is not None
    ]
    if not wanted:
        raise ManifestInvalid("no file is named; give one with --onnx or --torchscript")
    _require_places([path for _, path in wanted])
    if onnx is not None:
        _require_packages()
    source = Path(model)

    from fedsilo.learning.saved import read_description
    from fedsilo.local.evaluation import open_model

    with looking_at("", allow_imports):
        network, inputs = open_model(source, as_manifest(manifest), EXAMPLES)
    description = {
        name: value
        for name, value in read_description(source.with_suffix(".json")).items()
        if name != "updates"
    }
    text = json.dumps(description, sort_keys=True)
    return [_export(source, network, inputs, text, name, path) for name, path in wanted]


def _require_places(paths: list[Path]) -> None:
    if len(set(paths)) < len(paths):
        raise ManifestInvalid(f"{paths[0]}: is named for both formats; give each a file of its own")
    for path in paths:
        if not path.parent.is_dir():
            raise ManifestInvalid(f"{path.parent}: there is no such directory; make it first")
        if path.exists():
            raise ManifestInvalid(f"{path}: is there already; remove it or name another file")


def _require_packages() -> None:
    for package in PACKAGES:
        if find_spec(package) is None:
            raise ManifestInvalid(f"--onnx: needs {package}; pip install 'fedsilo[export]'")


def _export(
    source: Path, network: nn.Module, inputs: Tensor, description: str, name: str, path: Path
) -> ExportedFile:
    write, read = (_write_onnx, _read_onnx) if name == "ONNX" else (_write_torchscript, _read_torchscript)
    with temporary_file(path.parent) as (file, temporary):
        with _exporting(source, name):
            write(network, inputs, description, temporary)
        with _exporting(source, name):
            difference = _difference(network, read(temporary), inputs)
        if not difference <= TOLERANCE:
            raise MethodError(
                f"model {source}: as {name} its outputs differ from the original's by {difference:.3g} of the largest; "
                "nothing was written: change what depends on the example or the batch in the architecture"
            )
        with temporary.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        publish(file, temporary, path)
    return ExportedFile(path, name, digest, len(inputs), difference)


@contextmanager
def _exporting(source: Path, name: str) -> Iterator[None]:
    """What PyTorch prints of its own exporters, pages of it, is not the user's; what it cannot export is."""
    before, unread = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(unread), redirect_stderr(unread):
            warnings.simplefilter("ignore")
            yield
    except (MemoryError, OSError):
        raise
    except Exception as error:
        failure: BaseException = error
        while failure.__cause__ is not None:
            failure = failure.__cause__
        other = "--torchscript" if name == "ONNX" else "--onnx"
        raise MethodError(
            f"model {source}: cannot be exported to {name}: {type(failure).__name__}: {first_line(failure)}; change "
            f"what the exporter cannot follow in the architecture, or try {other}"
        ) from error
    finally:
        logging.disable(before)


def _write_onnx(network: nn.Module, inputs: Tensor, description: str, path: Path) -> None:
    import torch

    count = torch.export.Dim("n")
    program = torch.onnx.export(
        network,
        (inputs,),
        dynamo=True,
        dynamic_shapes=({0: count},),
        input_names=["inputs"],
        output_names=["outputs"],
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where in which file of this machine each operation comes from
    program.model.metadata_props[DESCRIPTION] = description
    program.save(path, external_data=False)


def _read_onnx(path: Path) -> Run:
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda inputs: torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])


def _write_torchscript(network: nn.Module, inputs: Tensor, description: str, path: Path) -> None:
    import torch

    with torch.no_grad():
        trace: Callable[..., Any] = torch.jit.trace
        traced = trace(network, inputs, check_trace=False)
    extra: Mapping[str, str] = {f"{DESCRIPTION}.json": description}
    torch.jit.save(traced, path, _extra_files=extra)


def _read_torchscript(path: Path) -> Run:
    import torch

    load: Callable[..., Run] = torch.jit.load
    return load(path, map_location="cpu")


def _difference(network: nn.Module, exported: Run, inputs: Tensor) -> float:
    """The largest difference of an output, as a part of the largest output or of 1; in batches of two sizes.

    Infinite where the shapes differ or a number is none.
    """
    import torch

    largest = 0.0
    with torch.no_grad():
        for batch in (inputs, inputs[:1]):
            expected, found = network(batch), exported(batch)
            if expected.shape != found.shape or not torch.isfinite(expected).all():
                return math.inf
            scale = max(1.0, expected.abs().max().item())
            difference = (expected - found).abs().max().item() / scale
            largest = max(largest, difference if math.isfinite(difference) else math.inf)
    return largest
