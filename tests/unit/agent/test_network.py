"""The trainer's network is looked at before the trainer begins."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid, PolicyRefused
from fedsilo_agent.network import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    QUIET_SECONDS,
    Target,
    aggregator,
    await_closed,
    probe_targets,
)

URL = "https://digits-aggregator.federation.svc:8443"

RESOLVER = """\
search silo-north.svc.cluster.local svc.cluster.local
nameserver 10.96.0.10
nameserver fd00::10
options ndots:5
"""


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
    with socket.create_server(("127.0.0.1", 0), backlog=2000) as listening:
        yield listening


@pytest.fixture
def name_server() -> Iterator[Target]:
    """Answers every question over UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answering:
        answering.bind(("127.0.0.1", 0))
        host, port = answering.getsockname()
        target = Target(host, port, b"?")

        def answer() -> None:
            while True:
                question, caller = answering.recvfrom(512)
                if question != b"?":
                    return
                answering.sendto(b"!", caller)

        thread = threading.Thread(target=answer)
        thread.start()
        yield target
        answering.sendto(b"end", target[:2])
        thread.join()


def target_of(server: socket.socket) -> Target:
    return Target(*server.getsockname())


def test_a_network_that_closes_is_waited_for(server: socket.socket) -> None:
    clock = Clock()
    clock.events[7] = server
    await_closed([Target("127.0.0.1", 9), target_of(server)], clock=clock, sleep=clock.sleep)
    assert clock.now == pytest.approx(6 * POLL_SECONDS + QUIET_SECONDS, abs=POLL_SECONDS * 1.1)


def test_a_network_that_stays_open_is_refused_with_both_causes(
    server: socket.socket, name_server: Target
) -> None:
    clock = Clock()
    with pytest.raises(PolicyRefused) as refused:
        await_closed([target_of(server), name_server], patience=3, clock=clock, sleep=clock.sleep)
    assert clock.now == pytest.approx(3, abs=POLL_SECONDS * 1.1)
    told = str(refused.value)
    assert (
        f"127.0.0.1:{target_of(server).port} (TCP), 127.0.0.1:{name_server.port} (UDP) can be reached 3 s"
        in told
    )
    assert "another NetworkPolicy of the namespace selects the trainer's pod" in told
    assert "plug-in enforces none" in told


def test_a_process_that_stood_still_asks_again_before_it_believes_in_silence() -> None:
    clock = Clock()
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))

        def stand_still(_: float) -> None:
            clock.now += 2 * QUIET_SECONDS
            late.listen()

        with pytest.raises(PolicyRefused, match="can be reached"):
            await_closed([target_of(late)], patience=1, clock=clock, sleep=stand_still)


def test_one_name_server_that_answers_over_udp_is_an_open_network(name_server: Target) -> None:
    clock = Clock()
    with pytest.raises(PolicyRefused, match=r"\(UDP\) can be reached"):
        await_closed([Target("127.0.0.1", 9), name_server], patience=1, clock=clock, sleep=clock.sleep)


def test_without_a_target_to_try_nothing_is_known() -> None:
    with pytest.raises(PolicyRefused, match="nothing shows that the network is closed"):
        await_closed([])


def test_the_cluster_has_longer_to_close_than_silence_has_to_last() -> None:
    assert PATIENCE_SECONDS > 10 * QUIET_SECONDS


def test_the_targets_are_those_that_every_pod_is_reported(tmp_path: Path) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(RESOLVER)
    told = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    targets = probe_targets(URL, "10.96.7.8", told, resolver)
    assert [str(target) for target in targets] == [
        "10.96.0.1:6443 (TCP)",
        "10.96.7.8:8443 (TCP)",
        "10.96.0.10:53 (TCP)",
        "10.96.0.10:53 (UDP)",
        "fd00::10:53 (TCP)",
        "fd00::10:53 (UDP)",
    ]
    assert probe_targets(URL, None, {}, tmp_path / "none") == []


def test_a_name_server_is_asked_for_the_clusters_own_domain(tmp_path: Path) -> None:
    """RFC 1035, section 4: header with one question, and no wish for recursion withheld."""
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("search svc.cluster.local\nnameserver 10.96.0.10")
    *_, asked = probe_targets(URL, None, {}, resolver)
    identity, flags, *counts = (int.from_bytes(asked.question[at : at + 2]) for at in range(0, 12, 2))
    assert (identity > 0, flags, counts) == (True, 0x0100, [1, 0, 0, 0])
    assert asked.question[12:] == b"\x03svc\x07cluster\x05local\0\0\x01\0\x01"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"spec": {}}', '{"spec": {"trust": []}}', '{"spec": {"trust": {}}}']
)
def test_a_file_that_is_no_agent_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "agent.json"
    with pytest.raises(ManifestInvalid, match=r"agent\.json: does not exist"):
        aggregator(path)
    path.write_text(content)
    with pytest.raises(ManifestInvalid, match=r"agent\.json: is no SiloAgent in JSON"):
        aggregator(path)


def test_it_starts_without_what_learns_and_what_speaks_http() -> None:
    heavy = {"torch", "numpy", "pydantic", "aiohttp"}
    script = f"import sys, fedsilo_agent.network; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "set()"
