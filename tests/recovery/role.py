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


def main(arguments: list[str]) -> int:
    """Run a program; its exit code."""
    environment, program, *rest = arguments
    os.environ |= json.loads(environment)
    exit_with_parent()
    for name, values in PAUSES.items():
        paused = import_module(name)
        for constant, seconds in values.items():
            assert hasattr(paused, constant), f"{name}.{constant}"
            setattr(paused, constant, seconds)
    module: Any = import_module(program)
    code: int = module.main(rest)
    return code
