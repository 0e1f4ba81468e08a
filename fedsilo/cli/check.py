"""`fedsilo check` tells whether the data of a manifest's silos fit its job, before anything is trained."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.loading import JobManifest
from fedsilo.api.text import count_text, severities
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.cli.columns import columns
from fedsilo.errors import DataInvalid

if TYPE_CHECKING:
    from fedsilo.readiness.finding import ReadinessFinding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The manifest, and the form of the answer."""
    parser.add_argument("-f", "--file", type=Path, required=True, help="the manifest that names the data")
    add_allow_import(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print all findings of all silos; returns 3 where one is an error, and 0 otherwise.

    :raises ManifestInvalid: when the manifest cannot be used.
    """
    from fedsilo.validation import load_manifest

    federation = load_manifest(args.file)

    from fedsilo.local.check import check
    from fedsilo.local.parts_check import require_parts_of_the_model

    with looking_at(args.file):
        require_parts_of_the_model(federation)
        findings = check(federation)
    if args.json:
        print(json.dumps({"file": federation.file, "findings": [asdict(finding) for finding in findings]}))
    else:
        print(table(federation, findings))
    wrong = any(finding.severity == "error" for finding in findings)
    return DataInvalid.exit_code if wrong else 0


def table(federation: JobManifest, findings: Sequence[ReadinessFinding]) -> str:
    """A verdict, and a row for each finding."""
    told = severities(map(asdict, findings))
    verdict = "not ready" if any(finding.severity == "error" for finding in findings) else "ready"
    head = (
        f"{federation.file}: {verdict}: {count_text(len(federation.silos), 'silo')}, {told or 'no finding'}"
    )
    if not findings:
        return head
    rows: list[Sequence[str]] = [("  silo", "severity", "code", "place", "value", "remedy")]
    for finding in findings:
        what = (finding.severity, finding.code, finding.place, finding.value, finding.remedy)
        rows.append((f"  {finding.silo}", *what))
    return f"{head}\n{columns(rows)}"
