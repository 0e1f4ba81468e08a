"""Settings of all tests, and the terminal in which some of them type the commands of a page."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from random import SystemRandom

import pytest
from hypothesis import HealthCheck, settings

from fedsilo.process import importing_for_good
from tests.pages import claimed_commands
from tests.terminal import Terminal, checkout

# No property depends on the clock: a machine that does other things too is slow, and nothing is wrong with that.
# Files of the tests' own serve every example: each one writes what it reads.
settings.register_profile(
    "any-pace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any-pace")
# Where nobody watches, the same examples each time: new ones are tried where a person can look at the failure.
settings.register_profile("ci", settings.default, derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# Who starts a program in the background of a script has it ignore some signals, and with it every program that tests
# start: those that are interrupted on purpose must hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


OPERATOR_SEED = "FEDSILO_OPERATOR_SEED"
"""Environment variable with the first of the seeds under which the operator is tried; a fresh one where it is unset."""

OPERATOR_SEEDS = 60


def pytest_report_header() -> str:
    """What repeats this run."""
    first = int(os.environ[OPERATOR_SEED])
    return f"operator seeds: {first} to {first + OPERATOR_SEEDS - 1} (again: {OPERATOR_SEED}={first})"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and draw what all workers of this run have in common."""
    os.environ.setdefault(OPERATOR_SEED, str(SystemRandom().randrange(1, 2**31)))
    config.addinivalue_line("markers", "gpu: this test needs a GPU, and is skipped where there is none")
    config.addinivalue_line("markers", "runs(page, *commands): this test types these commands of the page")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the tests without the cyclic collector, which passes over them, and over PyTorch, from then on."""
    with importing_for_good():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where PyTorch finds none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """A checkout of the project, and the commands that the test's `runs` name; each must be typed."""
    commands = [
        command for mark in request.node.iter_markers("runs") for command in claimed_commands(*mark.args)
    ]
    failed = request.session.testsfailed
    made = Terminal(checkout(tmp_path / "fedsilo"), commands)
    yield made
    if request.session.testsfailed == failed:
        assert made.untyped_commands == [], "the test did not run what it is named for"
