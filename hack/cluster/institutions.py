"""Clusters of institutions beside the hub's: the same programs, each in premises of its own.

A process works on one cluster, and its addresses mean something in one network namespace only. So what is asked about
an institution's cluster is done by a process of its own in there.
"""

from __future__ import annotations

import os
import subprocess
import sys

from hack.cluster.errors import ClusterError
from hack.cluster.paths import (
    COMPLETION_FILE,
    INSTITUTION,
    INSTITUTION_VARIABLE,
    INSTITUTIONS,
    RECORD,
    qualified_name,
)
from hack.cluster.premises import of_institution


def run(name: str, command: str) -> int:
    """Run `up`, `down` or `status` for an institution's cluster; the exit code.

    `up` also loads the images that `make images` has built. The hub's cluster must be up: settings of the machine that
    are nobody's own are changed and restored with it.

    :raises ClusterError: when the hub's is not up, or the premises cannot be made.
    """
    premises = of_institution(name)
    if command == "up" and not COMPLETION_FILE.exists():
        raise ClusterError("an institution's cluster stands beside the hub's; run `make cluster-up` first")
    if command != "status":
        premises.make()
    elif not premises.exists():
        print(f"The cluster of {name} is down; `python -m hack.cluster up --institution {name}` starts it.")
        return 1
    code = _run_in_institution(name, "hack.cluster", command)
    if command == "up" and code == 0:
        code = _run_in_institution(name, "hack.images")
    if command == "down" and code == 0:
        premises.remove()
    return code


def take_down() -> None:
    """Take down those beside the hub's, if this is the hub's.

    :raises ClusterError: when something is left of one.
    """
    for name in INSTITUTIONS if not INSTITUTION else ():
        there = RECORD.parent.with_name(qualified_name(RECORD.parent.name, name)) / RECORD.name
        if there.exists() and run(name, "down") != 0:
            raise ClusterError(f"the cluster of {name} could not be taken down")


def _run_in_institution(name: str, *module: str) -> int:
    command = of_institution(name).command(sys.executable, "-m", *module)
    return subprocess.run(command, env={**os.environ, INSTITUTION_VARIABLE: name}).returncode
