"""Updates with a metric of 1.7e308, of NaN and infinity, and one that nobody asked for.

By: a silo of the job with its own key.

Must: refused as `out-of-range`, `not-finite` or `unexpected-metric`; the status remains JSON that every reader takes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct

from attacks.live_aggregator import LiveAggregator
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.keys import UPDATE
from tests.integration.service.client import contents_of, decode_signed, forge, header_of


def attack(target: LiveAggregator) -> None:
    update = target.update()
    header, contents = header_of(update), contents_of(update)
    for metrics, code in (
        ({"loss": 1.7e308}, "out-of-range"),
        ({"loss": -1.7e308}, "out-of-range"),
        ({"loss": 0.5, "patients": 41.0}, "unexpected-metric"),
    ):
        forged = forge(target.silo.key, dataclasses.replace(header, metrics=metrics), contents)
        target.expect(code, target.silo.patch(target.task, forged))
    honest = struct.pack(">d", header.metrics["loss"])
    signed = decode_signed(update)[0]
    for value in (math.inf, math.nan):
        data = signed.replace(b"\xcb" + honest, b"\xcb" + struct.pack(">d", value))
        forged = pack(data) + SIGNATURE_HEAD + target.silo.key.sign(UPDATE, data)
        target.expect("not-finite", target.silo.patch(target.task, forged))
    json.loads(json.dumps(target.site.status(), allow_nan=False))
