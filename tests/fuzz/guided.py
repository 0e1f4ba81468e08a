"""The campaign for one parser, its inputs chosen by the branches that they reach: pip install 'fedsilo[fuzz]'.

python -m tests.fuzz.guided --seconds 600 task
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fedsilo", "fedsilo_agent", "fedsilo_aggregator"]):
    from tests.fuzz.__main__ import is_sound, report
    from tests.fuzz.corpus import saved_inputs
    from tests.fuzz.targets import targets


def main() -> None:
    """Fuzz one parser, guided by coverage; it ends the process."""
    known = targets()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=known)
    parser.add_argument("--seconds", type=int, default=120)
    args = parser.parse_args()
    target = known[args.target]

    def one(data: bytes) -> None:
        if not is_sound(target, data):
            report(target, data)
            raise SystemExit(1)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate([*target.seeds, *(path.read_bytes() for path in saved_inputs(target))]):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], f"-max_total_time={args.seconds}", "-max_len=65536", folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
