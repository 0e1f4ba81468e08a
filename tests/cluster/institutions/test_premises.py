"""An institution's cluster beside the hub's: whole, on its own, and closed to the hub's side."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hack.cluster.paths import NODE
from hack.cluster.premises import HUB_NAME, Premises
from hack.images import TOOLBOX, reference
from tests.cluster.institutions import edges, forward_proxy
from tests.cluster.institutions.clinic import Clinic
from tests.cluster.namespace import fresh_namespace, pod, wait_until
from tests.pages import runs
from tests.terminal import Terminal

PORT = 18500

_LISTEN = (
    "import socket, sys\n"
    "server = socket.create_server(('0.0.0.0', int(sys.argv[1])))\n"
    "print('listening', flush=True)\n"
    "while True:\n"
    "    server.accept()[0].close()\n"
)


@contextmanager
def listening(*within: str, port: int = PORT) -> Iterator[None]:
    """A server on every address of a place."""
    with subprocess.Popen(
        [*within, sys.executable, "-c", _LISTEN, str(port)], stdout=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"listening\n"
            yield
        finally:
            server.kill()


_CONNECT = (
    "import socket, sys\n"
    "proxy, target, login = sys.argv[1:]\n"
    f"asking = socket.create_connection((proxy, {forward_proxy.PORT}), 5)\n"
    "proof = f'Proxy-Authorization: Basic {login}\\r\\n' if login else ''\n"
    "asking.sendall(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n{proof}\\r\\n'.encode())\n"
    "print(asking.recv(100).split()[1].decode())\n"
)


def connects(address: str, port: int, *within: str) -> bool:
    """Whether a connection comes about."""
    ask = f"import socket; socket.create_connection(({address!r}, {port}), 2).close()"
    return subprocess.run([*within, sys.executable, "-c", ask], capture_output=True).returncode == 0


def test_the_hub_s_side_cannot_connect_to_what_listens_in_an_institution(clinic: Clinic) -> None:
    inside = clinic.premises.command()
    with listening(*inside):
        assert connects(clinic.premises.address, PORT, *inside)
        assert not connects(clinic.premises.address, PORT)
    with listening():
        assert connects(clinic.premises.gateway, PORT, *inside)


def test_a_link_that_is_cut_passes_nothing_until_it_is_mended(clinic: Clinic) -> None:
    premises = clinic.premises
    with listening():
        premises.cut()
        try:
            assert not connects(premises.gateway, PORT, *premises.command())
        finally:
            premises.mend()
        wait_until(lambda: connects(premises.gateway, PORT, *premises.command()), "the link")


def test_its_pods_run_on_a_node_of_its_own_and_know_the_hub_by_name(clinic: Clinic) -> None:
    (node,) = clinic.kubectl.get("nodes")["items"]
    assert node["metadata"]["name"] == NODE
    ask = f"import socket; print(socket.gethostbyname({HUB_NAME!r}))"
    with fresh_namespace(clinic.kubectl) as namespace:
        namespace.apply(pod("ask", TOOLBOX, ["python3", "-c", ask]))
        namespace.wait("pod", "ask", "jsonpath={.status.phase}=Succeeded")
        assert namespace.logs("ask").strip() == clinic.premises.gateway
    assert reference("guard") in clinic.images()


@pytest.fixture
def lab() -> Iterator[tuple[Premises, Premises]]:
    """A place that only reaches another one, which reaches the outside but passes nothing on."""
    between = Premises("t-dmz", 10)
    inside = Premises("t-lab", 11, outside=between, routed=False)
    try:
        between.make()
        inside.make()
        yield between, inside
    finally:
        inside.remove()
        between.remove()


@pytest.mark.parametrize("credentials", [True, False])
def test_the_forward_proxy_lets_those_through_who_may_and_to_the_hub_only(
    lab: tuple[Premises, Premises], credentials: bool
) -> None:
    between, inside = lab
    address = inside.gateway
    login = base64.b64encode(f"{forward_proxy.USER}:{forward_proxy.PASSWORD}".encode()).decode()

    def answer(target: str, login: str = login) -> str:
        command = inside.command(sys.executable, "-c", _CONNECT, address, target, login)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    hub = f"{HUB_NAME}:{edges.PORT}"
    with (
        listening(port=edges.PORT),
        forward_proxy.forward_proxy(between, address, credentials=credentials) as proxy,
    ):
        assert answer(hub) == "200"
        assert answer(hub, "") == ("407" if credentials else "200")
        assert answer(f"{HUB_NAME}:22") == answer(f"elsewhere.example:{edges.PORT}") == "403"
        assert len(proxy.requests()) == 4


def test_a_place_behind_another_one_has_no_way_out_but_that(lab: tuple[Premises, Premises]) -> None:
    between, inside = lab
    with listening(), listening(*between.command()):
        assert connects(inside.gateway, PORT, *inside.command())
        assert connects(between.gateway, PORT, *between.command())
        assert not connects(between.gateway, PORT, *inside.command())
        with pytest.raises(OSError):
            socket.create_connection((between.address, PORT), 2)


@runs(
    "docs/cluster.md",
    ". .venv/bin/activate",
    "python -m hack.cluster up --institution clinic",
    "nsenter --net=/run/netns/fedsilo-clinic kubectl --kubeconfig /var/lib/fedsilo-cluster-clinic/kubeconfig"
    " get pods -A",
)
def test_what_a_person_types_to_look_into_an_institution(clinic: Clinic, terminal: Terminal) -> None:
    activate, up, pods = terminal.commands
    terminal.type(activate)
    assert "already up" in terminal.type(up)
    assert "coredns" in terminal.type(pods)
