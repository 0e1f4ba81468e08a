"""A gateway process over a cluster in memory, for what measures and attacks one from outside.

    python -m tests.integration.gateway.process CONFIG

CONFIG is a JSON file with `tls` (folder), `key` (file), `limits` and `objects` (what the cluster holds). It prints its
port. Each further line on its standard input is an object to put into the cluster; it answers with the
`time.monotonic()` at which it did, which is the same clock in all processes. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsilo.api.observed import Object
from fedsilo.http.event_loop import run_event_loop
from fedsilo.wire import Authority, SigningKey, issue_server, make_authority
from fedsilo_operator.certificate import served_tls
from fedsilo_operator.gateway.hub import HubIdentity
from fedsilo_operator.gateway.limits import Limits
from fedsilo_operator.gateway.running import Gateway
from fedsilo_operator.objects import JOB_UID
from tests.operator_fakes.cluster import FakeCluster
from tests.paths import ROOT


class GatewayProcess:
    """The process, seen from the one that started it.

    :ivar ca: PEM of the authority of its certificate.
    :ivar hub: what silos' proofs name.
    """

    def __init__(self, folder: Path, objects: Iterable[Object], limits: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority, key = make_authority(), SigningKey.generate()
        _write_certificate(folder, authority)
        key.save(folder / "key.pem")
        config = {"tls": str(folder), "key": str(folder / "key.pem"), "limits": dict(limits)}
        (folder / "config.json").write_text(json.dumps(config | {"objects": list(objects)}))
        self.ca, self.key, self.hub = authority.cert_pem.decode(), key.verify_key, key.verify_key.key_id
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder / "config.json")],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.url = f"https://127.0.0.1:{self._line()}"

    @property
    def port(self) -> int:
        """Port at which the gateway serves."""
        return int(self.url.rpartition(":")[2])

    def put(self, obj: Object) -> float:
        """Put an object into the cluster; `time.monotonic()` of that."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(obj) + "\n")
        self.process.stdin.flush()
        return float(self._line())

    def stop(self) -> None:
        """End the process of the gateway."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise AssertionError(f"the gateway has ended:\n{self.log.read_text()}")
        return line


@contextmanager
def gateway(
    folder: Path, objects: Iterable[Object], limits: Mapping[str, Any] | None = None
) -> Iterator[GatewayProcess]:
    """A gateway until the block ends."""
    running = GatewayProcess(folder, objects, limits or {})
    try:
        yield running
    finally:
        running.stop()


def accepted_silo(silo: str, key: SigningKey) -> Object:
    """A silo, `namespace/name`, that has enrolled and was accepted, as the hub has it."""
    public = key.verify_key
    enrolment = {"publicKey": public.to_text(), "fingerprint": public.fingerprint, "tokenDigest": "0" * 64}
    namespace, _, name = silo.partition("/")
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"remote": {"publicKey": public.to_text()}},
        "status": {"enrolment": enrolment | {"time": "2026-01-02T03:04:05Z", "version": "0.1.0"}},
    }


def silo_agent(silo: str, key: SigningKey, job: str, url: str, ca: str, *, suspend: bool = False) -> Object:
    """The part of a silo in a job, whose aggregator is at this address."""
    namespace, _, name = silo.partition("/")
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "SiloAgent",
        "metadata": {"namespace": namespace, "name": f"{job}-{name}", "labels": {JOB_UID: job}},
        "spec": {
            "job": {"namespace": "federation", "name": job, "uid": job},
            "silo": {"namespace": namespace, "name": name},
            "trust": {"url": url, "caCertificate": ca, "publicKey": key.verify_key.to_text()},
            "route": {"url": url, "caCertificate": ca},
            "suspend": suspend,
        },
    }


def _write_certificate(folder: Path, authority: Authority) -> None:
    certificate, key = issue_server(authority, ["127.0.0.1"])
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)


async def _serve(config: Mapping[str, Any]) -> None:
    cluster = FakeCluster()
    for obj in config["objects"]:
        cluster.put(obj)
    identity = HubIdentity(SigningKey.load(Path(config["key"])), "https://127.0.0.1")
    served = Gateway(cluster, identity, Limits(**config["limits"]))
    work = asyncio.ensure_future(served.run("127.0.0.1", 0, served_tls(Path(config["tls"]))))
    while served.unready_reason() and not work.done():
        await asyncio.sleep(0.01)
    following = asyncio.ensure_future(_follow(cluster))
    print(served.port, flush=True)
    await asyncio.wait([work, following], return_when=asyncio.FIRST_COMPLETED)
    following.cancel()
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


async def _follow(cluster: FakeCluster) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        cluster.put(json.loads(line))
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    run_event_loop(_serve(json.loads(Path(sys.argv[1]).read_text())))
