"""Updates with NaN and infinity in a block, rightly signed and with the right digest.

By: a silo of the job with its own key.

Must: refused as `not-finite`.
"""

from __future__ import annotations

import math

from attacks.live_aggregator import LiveAggregator
from tests.integration.service.client import with_values


def attack(target: LiveAggregator) -> None:
    update = target.update()
    for value in (math.nan, math.inf, -math.inf):
        forged = with_values(target.silo.key, update, value)
        target.expect("not-finite", target.silo.patch(target.task, forged))
