"""`python -m fedsilo.hub.doctor` runs the doctor in a pod of an institution's own cluster (`helm test`).

Whether network policies hold is tried by a pod of its own. That this one runs shows that the guard's image is pulled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from fedsilo.api.invitation import read_invitation_file
from fedsilo.hub.doctor.finding import Finding, has_failed, report
from fedsilo.hub.doctor.storage import examine_storage
from fedsilo.hub.doctor.way import examine_way
from fedsilo.logs import start_logging
from fedsilo.process import Arguments, run_until_done
from fedsilo.wire import SigningKey


def main(argv: list[str] | None = None) -> int:
    """Run the doctor and print its findings; returns 1 when something is to be done."""
    start_logging()
    findings: list[Finding] = []
    code = run_until_done(lambda: findings.extend(_examine(_arguments(argv))))
    if code == 0:
        print(report(findings), flush=True)
        code = int(has_failed(findings))
    return code


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="fedsilo-doctor", description="Check what must hold in an institution's cluster.")
    parser.add_argument("--invitation", type=Path, required=True, help="invitation of the hub (YAML)")
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        help="the silo's private signing key (PEM); beside it may be others",
    )
    parser.add_argument("--storage", type=Path, required=True, help="a volume like those of the silo's jobs")
    return parser.parse_args(argv)


def _examine(args: argparse.Namespace) -> list[Finding]:
    invitation = read_invitation_file(args.invitation)
    keys = SigningKey.load_all(args.key) if args.key.exists() else []
    found = asyncio.run(examine_way(invitation.hub, invitation.silo, keys, os.environ))
    return [*found, examine_storage(args.storage, args.storage / "doctor")]


if __name__ == "__main__":
    sys.exit(main())
