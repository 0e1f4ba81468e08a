"""A silo that does what a test tells it to: honest and forged requests, honest and forged updates."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import planned_mechanisms
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import (
    FINISH,
    Contract,
    ModelSignature,
    SigningKey,
    Task,
    Tree,
    UpdateHeader,
    VerifyKey,
    open_blob,
    open_task,
    sign_request,
    specs_of,
    task_digest,
)
from fedsilo.wire.envelope import SIGNATURE_HEAD, split_envelope
from fedsilo.wire.fields import pack
from fedsilo.wire.header import base, decode_header, encode_header, gaps
from fedsilo.wire.keys import UPDATE
from tests.integration.service.site import PATIENCE_SECONDS, Site
from tests.updates import digest_of, write_update


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def code(self) -> str:
        """Code of the refusal, which header and document must both carry; "" for an acceptance."""
        code = self.headers.get("Problem", "")
        if code and self.body:
            assert self.headers["Content-Type"].startswith("application/problem+json")
            document = json.loads(self.body)
            assert document["type"] == f"urn:fedsilo:problem:{code}"
            assert document["status"] == self.status
        return code


def answer_on(connection: ssl.SSLSocket) -> Answer:
    """What comes back over a bare connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return Answer(response.status, response.headers, response.read())


@dataclass(frozen=True)
class FetchedTask:
    """A task as a silo received it, with everything an update needs."""

    sealed: bytes
    task: Task
    contract: Contract
    tree: Tree


class SiloClient:
    """One silo's side of the protocol, over a new connection for each request."""

    def __init__(self, site: Site, silo: str) -> None:
        self.site = site
        self.silo = silo
        name = silo.rpartition("/")[2]
        self.key = SigningKey.load(site.workdir.volume(name).guard / "key.pem")
        trust = site.agent(name)["spec"]["trust"]
        self.task_key = VerifyKey.from_text(trust["taskKey"])
        self.tls = ssl.create_default_context(cadata=trust["caCertificate"])
        self.base = f"/v1/jobs/{site.uid}"

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.site.port, context=self.tls, timeout=PATIENCE_SECONDS
        )

    def socket(self) -> ssl.SSLSocket:
        """A bare connection, for whoever means to break it."""
        raw = socket.create_connection(("127.0.0.1", self.site.port), timeout=PATIENCE_SECONDS)
        return self.tls.wrap_socket(raw, server_hostname="127.0.0.1")

    def proof(self, method: str, path: str, body: bytes | None = None, **changes: Any) -> str:
        honest: dict[str, Any] = {"job": self.site.uid, "sender": self.silo, "now": time.time()}
        return sign_request(self.key, method=method, path=path, body=body, **(honest | changes))

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        proof: str | None = None,
    ) -> Answer:
        """Send a request, honest unless the test brings its own proof; "" sends none."""
        bound = body if method == "POST" else None
        proof = self.proof(method, path, bound) if proof is None else proof
        fields = dict(headers or {}) | ({"Authorization": proof} if proof else {})
        connection = self.connect()
        try:
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def task(self, after: str = "", wait: float = PATIENCE_SECONDS) -> Task:
        """Fetch the next task of the silo; that it has the last one, it says at once."""
        task = open_task(self.sealed_task(after, wait), self.task_key)
        if task.step == FINISH:
            self.request("GET", f"{self.base}/task?after={FINISH}&wait=0")
        return task

    def sealed_task(self, after: str = "", wait: float = PATIENCE_SECONDS) -> bytes:
        answer = self.request("GET", f"{self.base}/task?after={after}&wait={wait:g}")
        assert answer.status == 200, answer
        return answer.body

    def fetch_task(self, after: str = "") -> FetchedTask:
        """Fetch the next task and its model."""
        sealed = self.sealed_task(after)
        task = open_task(sealed, self.task_key)
        answer = self.request("GET", f"{self.base}/blobs/{task.blobs[0].digest}")
        assert answer.status == 200, answer
        tree = read_tree(answer.body)
        return FetchedTask(sealed, task, contract_of(self.site, task.step, tree), tree)

    def patch(self, task: str, data: bytes, offset: int = 0, **headers: str) -> Answer:
        """Upload an update from an offset on; headers are changed by name, `_` for `-`."""
        fields = {
            "Upload-Offset": str(offset),
            "Upload-Length": str(len(data)),
            "Upload-Digest": digest_of(data),
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("PATCH", f"{self.base}/updates/{task}", fields, data[offset:])

    def begin(self, task: str, data: bytes, offset: int = 0) -> ssl.SSLSocket:
        """Send the head of an upload from an offset on, and keep the connection for its bytes."""
        path = f"{self.base}/updates/{task}"
        lines = [
            f"PATCH {path} HTTP/1.1",
            "Host: aggregator",
            f"Authorization: {self.proof('PATCH', path)}",
            f"Content-Length: {len(data) - offset}",
            f"Upload-Offset: {offset}",
            f"Upload-Length: {len(data)}",
            f"Upload-Digest: {digest_of(data)}",
        ]
        connection = self.socket()
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection

    def head(self, task: str, digest: str = "0" * 64) -> Answer:
        return self.request("HEAD", f"{self.base}/updates/{task}", {"Upload-Digest": digest})

    def fail(self, task: str, body: bytes) -> Answer:
        return self.request("POST", f"{self.base}/failures/{task}", body=body)

    def update(self, given: FetchedTask, **changes: Any) -> bytes:
        """An honest update, or one with some arguments of `write_update` changed."""
        task = given.task
        arguments: dict[str, Any] = {
            "job": task.job,
            "task": task.task,
            "round": task.round,
            "sender": self.silo,
            "contract": given.contract,
            "task_digest": task_digest(given.sealed),
            "samples": 10,
            "metrics": {"loss": 0.5},
            "key": self.key,
        }
        if "blocks" not in changes:
            arguments["blocks"] = [(block, given.tree[block.name]) for block in given.contract.blocks]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "update"
            write_update(path, **(arguments | changes))
            return path.read_bytes()

    def answer(self, given: FetchedTask) -> None:
        """Do what an honest silo does."""
        answer = self.patch(given.task.task, self.update(given))
        assert answer.status == 201, answer


def finish_job(*clients: SiloClient) -> list[bool]:
    """Answer every task until the job has ended; what each silo was told of its end."""
    ends: list[bool] = []
    after = ""
    while not ends:
        tasks = [client.task(after) for client in clients]
        after = tasks[0].task
        if tasks[0].step == FINISH:
            ends = [bool(task.settings["succeeded"]) for task in tasks]
        else:
            for client in clients:
                client.answer(client.fetch_task())
    return ends


def contract_of(site: Site, step: str, tree: Tree) -> Contract:
    return JobPlan.of(site.federation.job.spec).contract(step, signature_of(tree), {})


def said_of(spec: FederatedJobSpec) -> dict[str, Any]:
    """What an honest trainer says of a reply to a task of training: few examples, or what a private job plans."""
    if spec.privacy.differential_privacy is None:
        return {"samples": 10}
    planned = planned_mechanisms(registry.bind(spec), "train", 100)
    return {"samples": 100, "mechanisms": [each.to_dict() for each in planned]}


def signature_of(tree: Tree) -> ModelSignature:
    classes, feature = tree["classifier.weight"].shape
    return ModelSignature(specs_of(tree), classes, feature)


def read_tree(blob: bytes) -> Tree:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "blob"
        path.write_bytes(blob)
        with open_blob(path) as tensors:
            return {name: np.array(array) for name, array in tensors.items()}


def header_of(update: bytes) -> UpdateHeader:
    return decode_header(decode_signed(update)[0])


def decode_signed(update: bytes) -> tuple[bytes, bytes]:
    """Header and signature of an update."""
    end = _signed_length(update)
    return split_envelope("update", update[:end], len(update))


def _signed_length(update: bytes) -> int:
    width = {0xC4: 1, 0xC5: 2, 0xC6: 4}[update[0]]
    return 1 + width + int.from_bytes(update[1 : 1 + width], "big") + len(SIGNATURE_HEAD) + 64


def contents_of(update: bytes) -> list[bytes]:
    """Payloads of an update's blocks."""
    start = base(_signed_length(update))
    return [update[start + block.offset :][: block.length] for block in header_of(update).blocks]


def forge(key: SigningKey, header: UpdateHeader, contents: list[bytes]) -> bytes:
    """An update of any header and any payloads, well signed, whatever the contract says."""
    data = encode_header(header)
    signed = pack(data) + SIGNATURE_HEAD + key.sign(UPDATE, data)
    for gap, content in zip(gaps(len(signed), header.blocks), contents, strict=True):
        signed += gap + content
    return signed


def with_values(key: SigningKey, update: bytes, value: float) -> bytes:
    """The update with one value of its first block replaced, and the digest that belongs to it."""
    header, contents = header_of(update), contents_of(update)
    values = np.frombuffer(contents[0], "<f4").copy()
    values[len(values) // 2] = value
    contents[0] = values.tobytes()
    block = replace(header.blocks[0], digest=hashlib.sha256(contents[0]).digest())
    return forge(key, replace(header, blocks=(block, *header.blocks[1:])), contents)
