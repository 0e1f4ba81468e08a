"""What a role must not import when it starts: what it never needs, or not before somebody asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMPUTING = {"torch", "sklearn", "scipy", "dp_accounting", "PIL", "pandas"}
ISSUING = {"cryptography.x509", "cryptography.hazmat.primitives.serialization"}
"""Only what makes certificates or reads keys needs them."""

FORBIDDEN_MODULES = {
    "fedsilo.wire": COMPUTING | ISSUING | {"aiohttp", "yaml", "pydantic", "asyncio", "ssl", "blake3"},
    "fedsilo.validation": COMPUTING | ISSUING | {"aiohttp", "rich", "asyncio", "ssl", "zstandard", "blake3"},
    "fedsilo_operator.__main__": COMPUTING | {"rich", "zstandard", "blake3"},
    "fedsilo.local.in_process": COMPUTING | ISSUING | {"aiohttp", "kubernetes_asyncio"},
    "fedsilo_agent.guard.__main__": COMPUTING | ISSUING | {"kubernetes_asyncio", "rich"},
    "fedsilo_agent.trainer.__main__": COMPUTING | ISSUING | {"aiohttp", "numpy"},
}
"""Module that a role begins with -> modules that importing it must not import."""


@pytest.mark.parametrize("module", FORBIDDEN_MODULES)
def test_a_role_does_without(module: str) -> None:
    code = f"import sys, {module}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert FORBIDDEN_MODULES[module] & set(ran.stdout.split()) == set()
