"""`fedsilo-operator`: reconcile FederatedJobs and SiloAgents until told to stop."""

from __future__ import annotations

import argparse
import sys

from fedsilo.process import version


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fedsilo-operator", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--version", action="version", version=version())
    parser.parse_args(argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
