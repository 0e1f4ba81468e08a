"""The scripts of hooks, run as the pods run them, against servers that say what they are told to."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from charts.generate import CHARTS
from fedsilo.wire.certificates import issue_server, make_authority
from tests.ports import free_port

READY_SCRIPT = CHARTS / "fedsilo" / "files" / "ready.py"
KEY = CHARTS / "fedsilo-silo" / "files" / "key.py"
GPU = CHARTS / "fedsilo-silo" / "files" / "gpu.py"
SERVED_SCRIPT = CHARTS / "fedsilo-silo" / "files" / "served.py"
ISOLATION = CHARTS / "fedsilo-silo" / "files" / "isolation.py"

TOKEN = "a-token"
PATH = "/apis/fedsilo.io/v1alpha1/namespaces/silo-north/silos/north"


def run(script: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and output; a traceback is a failure of the test."""
    command = [sys.executable, "-c", script.read_text(), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout


@contextmanager
def serving(
    answers: Mapping[str, tuple[int, str] | Iterator[tuple[int, str]]], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """A server that has an answer for some paths, or one after the other, and 401 for who brings another token; its
    port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[self.path]
            status, body = answer if isinstance(answer, tuple) else next(answer)
            if context and self.headers["Authorization"] != f"Bearer {TOKEN}":
                status, body = 401, json.dumps({"message": "Unauthorized"})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        @override
        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_operators_that_are_ready() -> None:
    with serving({"/readyz": (200, "ok\n")}) as port:
        assert run(READY_SCRIPT, "127.0.0.1", str(port), "1") == (0, "1 operators are ready: 127.0.0.1\n")


@pytest.mark.parametrize(
    ("status", "body", "replicas"), [(503, "not listed yet: silos\n", "1"), (200, "ok\n", "2")]
)
def test_operators_that_are_not_ready_or_too_few(status: int, body: str, replicas: str) -> None:
    with serving({"/readyz": (status, body)}) as port:
        code, said = run(READY_SCRIPT, "127.0.0.1", str(port), replicas, "0")
    assert code == 1
    assert f"of {replicas} operators are ready" in said
    assert f"('127.0.0.1', '{body.strip()}')" in said


def test_operators_that_do_not_answer() -> None:
    code, said = run(READY_SCRIPT, "127.0.0.1", str(free_port()), "1", "0")
    assert code == 1
    assert "0 of 1 operators are ready" in said
    assert "no answer: <urlopen error [Errno 111] Connection refused>" in said


def test_operators_without_an_address() -> None:
    code, said = run(READY_SCRIPT, "no-such-name.invalid", "8080", "2", "0")
    assert (code, said) == (1, "0 of 2 operators are ready; look at the logs of the others\n")


@pytest.fixture
def account(tmp_path: Path) -> Path:
    authority = make_authority()
    cert, key = issue_server(authority, ["127.0.0.1"])
    for name, content in {"ca.crt": authority.cert_pem, "tls.crt": cert, "tls.key": key}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "token").write_text(TOKEN)
    return tmp_path


def server_context(account: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "tls.crt", account / "tls.key")
    return context


def look(account: Path, status: int, body: Any) -> tuple[int, str]:
    with serving({PATH: (status, json.dumps(body))}, server_context(account)) as port:
        return ask(account, port)


def ask(account: Path, port: int) -> tuple[int, str]:
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    return run(KEY, "silo-north", "north", "0", str(account), **where)


def test_a_silo_that_is_ready(account: Path) -> None:
    condition = {"type": "Ready", "status": "True", "message": "The silo signs with ed25519:abc."}
    said = look(account, 200, {"status": {"publicKey": "ed25519:abc", "conditions": [condition]}})
    assert said == (0, "Silo silo-north/north: The silo signs with ed25519:abc.\n")


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, {}, "no operator has looked at it; is one running, with rights in this namespace?"),
        (
            200,
            {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "Secret is gone."}]}},
            "Secret is gone.",
        ),
        (404, {"message": 'silos "north" not found'}, 'the API server says: silos "north" not found'),
    ],
)
def test_a_silo_that_is_not_ready(account: Path, status: int, body: Any, text: str) -> None:
    assert look(account, status, body) == (1, f"Silo silo-north/north: {text}\n")


def test_an_account_without_rights(account: Path) -> None:
    (account / "token").write_text("another")
    assert look(account, 200, {}) == (1, "Silo silo-north/north: the API server says: Unauthorized\n")


def test_an_api_server_that_does_not_answer(account: Path) -> None:
    code, said = ask(account, free_port())
    assert code == 1
    assert "the API server does not answer: <urlopen error [Errno 111] Connection refused>" in said


def discovery(*kinds: str, group: str = "fedsilo.io") -> tuple[int, str]:
    """What an API server says that serves these kinds."""
    resources = [{"resource": f"{kind.lower()}s", "responseKind": {"kind": kind}} for kind in kinds]
    versions = [{"version": "v1alpha1", "resources": resources}]
    return 200, json.dumps({"items": [{"metadata": {"name": group}, "versions": versions}]})


UNSERVED_ANSWERS = (
    discovery(group="apps"),
    discovery("SiloAgent"),
    discovery("Silo", group="another.io"),
    (503, "{}"),
)
"""What is said while the kind is not served."""


def wait(account: Path, answers: Iterator[tuple[int, str]], patience: str) -> tuple[int, str]:
    with serving({"/apis": answers}, server_context(account)) as port:
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        return run(SERVED_SCRIPT, "fedsilo.io", "v1alpha1", "Silo", patience, str(account), **where)


def test_an_installation_waits_until_its_kind_is_served(account: Path) -> None:
    served = discovery("SiloAgent", "Silo")
    lagging = (
        *UNSERVED_ANSWERS,
        served,
        served,
        UNSERVED_ANSWERS[0],
    )  # another API server does not know it yet
    answers = chain(lagging, repeat(served, 10))
    assert wait(account, answers, "60") == (0, "Silo in fedsilo.io/v1alpha1: served\n")
    assert next(answers, None) is None


def test_an_installation_whose_kind_is_never_served(account: Path) -> None:
    code, said = wait(account, repeat(UNSERVED_ANSWERS[1]), "0")
    assert code == 1
    assert said.startswith("Silo in fedsilo.io/v1alpha1: not served; what does `kubectl describe crd` say")


def run_isolation(port: int) -> tuple[int, str]:
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    return run(ISOLATION, "0", **where)


def test_a_pod_that_gets_out() -> None:
    with serving({}) as port:
        code, said = run_isolation(port)
    assert code == 1
    assert f"this pod reaches 127.0.0.1:{port}, which no network policy permits" in said


def test_a_pod_that_does_not_get_out() -> None:
    port = free_port()
    assert run_isolation(port) == (
        0,
        f"this pod cannot reach 127.0.0.1:{port}: network policies are enforced\n",
    )


TORCH = """
__version__ = "2.11.0"


class cuda:
    is_available = staticmethod(lambda: {available})
    get_device_name = staticmethod(lambda number: "a card")


def ones(*shape, device):
    if {broken}:
        raise RuntimeError("CUDA driver version is insufficient\\nCompile with TORCH_USE_CUDA_DSA")
    return ones


ones.sum = lambda: ones
ones.item = lambda: 2.0
"""
"""What stands for PyTorch on a machine with a card, which the tests' need not have."""


@pytest.mark.parametrize(
    ("available", "broken", "code", "said"),
    [
        (True, False, 0, "PyTorch 2.11.0 computes on a card\n"),
        (
            False,
            False,
            1,
            "PyTorch 2.11.0 finds no GPU in this pod, although agent.resources asks for one: look at",
        ),
        (
            True,
            True,
            1,
            "finds a card and cannot use it (CUDA driver version is insufficient): name a trainer image",
        ),
    ],
)
def test_a_trainer_image_and_a_gpu(
    tmp_path: Path, available: bool, broken: bool, code: int, said: str
) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(available=available, broken=broken))
    found, text = run(GPU, PYTHONPATH=str(tmp_path))
    assert (found, len(text.splitlines())) == (code, 1)
    assert said in text
