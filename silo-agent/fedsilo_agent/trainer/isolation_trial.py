"""`python -m fedsilo_agent.trainer.isolation_trial` isolates its process as a trainer is, and shows what is left.

It prints one JSON object: what `isolate` says of itself, whether an address outside was reached, and which of the
hidden directories still shows anything.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path

from fedsilo_agent.trainer.isolation import ISOLATED_MESSAGE, TrainerDirectory, isolate

CONNECT_SECONDS = 3.0


def main(argv: list[str] | None = None) -> int:
    """Isolate this process and print what is left; returns 0 however it went."""
    parser = argparse.ArgumentParser(
        description="Isolate this process as a trainer is, and look what it can do."
    )
    parser.add_argument("--hide", type=Path, action="append", default=[], help="directory to cover")
    parser.add_argument("--home", type=Path, required=True, help="the silo's directory")
    parser.add_argument("--volume", type=Path, required=True, help="directory of a job's part in it")
    parser.add_argument("--connect", nargs=2, metavar=("HOST", "PORT"), required=True, help="address to try")
    args = parser.parse_args(argv)
    home = TrainerDirectory(args.home, args.volume.parent, args.volume)
    said = isolate(args.hide, args.volume, home)
    found = {
        "isolated": said == ISOLATED_MESSAGE,
        "said": said,
        "reached": _reaches(args.connect[0], int(args.connect[1])),
        "seen": [str(path) for path in args.hide if any(path.iterdir())],
    }
    print(json.dumps(found))
    return 0


def _reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
