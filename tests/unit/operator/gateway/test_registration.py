"""What of institutions' words about themselves the hub keeps, and how much of it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from fedsilo.errors import Problem
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey
from fedsilo_operator.gateway.bodies import json_object
from fedsilo_operator.gateway.registration import Registration
from fedsilo_operator.objects import SILO_KIND, Ref
from tests.integration.gateway.process import accepted_silo
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.job.harness import View

SILO = Ref("silo-north", "north")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


async def test_an_enrolment_has_so_many_keys_and_no_more() -> None:
    cluster = FakeCluster()
    keys = [SigningKey.generate() for _ in range(66)]
    cluster.put(accepted_silo(str(SILO), keys[0]))
    registration = Registration(cluster, View(cluster), "hub", lambda: NOW)
    for previous, key in pairwise(keys[:65]):
        await registration.rotate(SILO, sign_rotation(str(SILO), previous, key, NOW))
    assert registration.registered_key(SILO) == keys[64].verify_key
    with pytest.raises(Problem, match=r"too-long: .* has announced 64 keys; join with a new invitation"):
        await registration.rotate(SILO, sign_rotation(str(SILO), keys[64], keys[65], NOW))
    assert len(cluster.peek(SILO_KIND, SILO)["status"]["rotations"]) == 64


@pytest.mark.parametrize("body", [b'{"token": "a", "token": "b"}', b'{"status": {"x": 1, "x": 2}}'])
def test_a_field_that_is_given_twice_is_refused(body: bytes) -> None:
    """Two readers could take either."""
    with pytest.raises(Problem, match="malformed: the body is not a JSON object"):
        json_object(body)
