"""The trainer begins only when its network is closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fedsilo.errors import PolicyRefused
from fedsilo.manifests.agent import TrustBundle
from fedsilo.wire import SigningKey, make_authority
from fedsilo_agent.trainer.network import QUIET, Place, await_closed, tempting_places


class Clock:
    """Time that passes only in `sleep`, and what happens meanwhile."""

    def __init__(self) -> None:
        self.now, self.sleeps = 0.0, 0
        self.events: dict[int, socket.socket] = {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if closing := self.events.get(self.sleeps):
            closing.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        yield listening


def place_of(server: socket.socket) -> Place:
    host, port = server.getsockname()
    return host, port


def test_a_network_that_closes_is_waited_for(server: socket.socket) -> None:
    clock = Clock()
    clock.events[7] = server
    await_closed([place_of(server)], clock=clock, sleep=clock.sleep)
    assert clock.sleeps == 7 + QUIET


def test_one_open_place_is_enough_to_wait(server: socket.socket) -> None:
    clock = Clock()
    clock.events[2] = server
    await_closed([("127.0.0.1", 9), place_of(server)], clock=clock, sleep=clock.sleep)
    assert clock.sleeps == 2 + QUIET


def test_a_network_that_stays_open_is_refused(server: socket.socket) -> None:
    clock = Clock()
    with pytest.raises(
        PolicyRefused, match=r"127\.0\.0\.1:\d+ can be reached 60 s after .* does not enforce policies"
    ):
        await_closed([place_of(server)], clock=clock, sleep=clock.sleep)


def test_without_a_place_to_try_nothing_is_known() -> None:
    with pytest.raises(PolicyRefused, match="nothing shows that the network is closed"):
        await_closed([])


def test_the_places_are_those_that_every_pod_is_told() -> None:
    key = SigningKey.generate().verify_key.to_text()
    trust = TrustBundle(
        url="https://digits-aggregator.federation.svc:8443",
        address="10.96.7.8",
        ca_certificate=make_authority().cert_pem.decode(),
        task_key=key,
        public_key=key,
    )
    told = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert tempting_places(trust, told) == [("10.96.0.1", 6443), ("10.96.7.8", 8443)]
    assert tempting_places(trust.model_copy(update={"address": None}), {}) == []
