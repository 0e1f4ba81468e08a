"""A process of a federation as it is, with shorter pauses between tries.

fork server: tests.recovery.role ENVIRONMENT PROGRAM ARGUMENT...
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from typing import Any

from fedsilo.process import exit_with_parent
from tests.faults.role import PAUSES

LEASE = {
    "fedsilo_operator.runtime.election": {
        "LEASE_SECONDS": 2,
        "RENEW_DEADLINE_SECONDS": 1.5,
        "RETRY_SECONDS": 0.2,
    }
}
"""Until another may lead after a kill; only processes that elect a leader import it."""


def main(arguments: list[str]) -> int:
    """Run a role's program with shorter pauses; the program's exit code."""
    environment, program, *rest = arguments
    os.environ |= json.loads(environment)
    exit_with_parent()
    leading = LEASE if program.startswith("fedsilo_operator.connector") else {}
    for name, values in (PAUSES | leading).items():
        paused = import_module(name)
        for constant, seconds in values.items():
            assert hasattr(paused, constant), f"{name}.{constant}"
            setattr(paused, constant, seconds)
    module: Any = import_module(program)
    code: int = module.main(rest)
    return code
