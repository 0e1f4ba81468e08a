"""`fedsilo export` writes a trained model as ONNX or TorchScript, checked against the original."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fedsilo.api.text import count_text
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.validation import load_manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the manifest, the new files and the output format to the arguments of `fedsilo export`."""
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="model.safetensors of a job, or personal.safetensors of a silo, and its .json beside it",
    )
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        required=True,
        help="the manifest that names the model, and the data to check it on",
    )
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="the new file, as ONNX")
    parser.add_argument("--torchscript", type=Path, metavar="FILE", help="the new file, as TorchScript")
    add_allow_import(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Write the exported files and print their digests. Errors are those of `fedsilo.local.export.export`."""
    federation = load_manifest(args.file)

    from fedsilo.local.export import export

    files = export(args.model, federation, onnx=args.onnx, torchscript=args.torchscript)
    if args.json:
        print(json.dumps({"files": [vars(file) | {"path": str(file.path)} for file in files]}))
        return 0
    for file in files:
        checked = (
            f"checked on {count_text(file.examples, 'example')}, largest difference {file.difference:.1e}"
        )
        print(f"{file.path}: {file.format}, {checked}\nsha256  {file.sha256}")
    return 0
