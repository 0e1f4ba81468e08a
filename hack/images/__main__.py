"""Build of the images, and their load into the cluster if it runs: `python -m hack.images`."""

from __future__ import annotations

import os
import sys

from hack.cluster.errors import ClusterError
from hack.cluster.paths import INSTITUTION, say
from hack.images.building import build
from hack.images.loading import load


def main() -> int:
    """Build the images, load them, and return the exit code."""
    if os.geteuid() != 0:
        print("cluster: building the images needs root; try sudo", file=sys.stderr)
        return ClusterError.exit_code
    try:
        if not INSTITUTION:  # whose cluster takes what was built for the hub's
            build()
        if not load():
            say(
                "the images are built; no cluster runs that could take them: `make cluster-up`, then `make images`"
            )
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("cluster: interrupted; `make images` goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
