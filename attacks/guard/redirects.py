"""Every request for a task is answered with a redirect, to the same host and to another.

By: a hostile aggregator.

Must: no redirect is followed; the guard says so and asks again.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError


def attack(target: LiveGuard) -> None:
    aggregator = target.aggregator
    for place in (
        f"https://127.0.0.1:{aggregator.site.port}/elsewhere",
        "http://169.254.169.254/latest/meta-data",
    ):
        aggregator.redirect = place
        try:
            before = target.requests
            target.wake()
            target.wait_for_requests(before + 2)
            target.expect_logged("status 307")
        finally:
            aggregator.redirect = ""
    if any("elsewhere" in line for line in aggregator.requests):
        raise NotRefusedError("a redirect was followed")
