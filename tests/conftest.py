"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Where nobody watches, the same examples each time: a new one is found by whoever can look at it.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
