"""Settings of all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# No property depends on the clock: a machine that does other things too is slow, and nothing is wrong with that.
# Files of the tests' own serve every example: each one writes what it reads.
settings.register_profile(
    "any-pace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any-pace")
# Where nobody watches, the same examples each time: a new one is found by whoever can look at it.
settings.register_profile("ci", settings.default, derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Who starts a program in the background of a script has it ignore some signals, and with it every program that tests
# start: those that are interrupted on purpose must hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
