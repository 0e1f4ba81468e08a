"""An API server as far as an aggregator's report needs one: server-side apply to the status of one FederatedJob.

That the real one behaves so was seen on Kubernetes 1.36: an apply to the status of a custom resource ignores
`metadata.uid`, heeds `metadata.resourceVersion`, and a dry run answers with the uid and version that are there.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from typing_extensions import override


class Api:
    """The status of one job.

    :ivar uid: of the job that exists now; None when there is none.
    :ivar down: whether every request is answered with 503.
    :ivar writes: every status that was applied, in order.
    :ivar requests: paths and queries of all requests.
    """

    def __init__(self, kubeconfig: Path, job: str, uid: str | None) -> None:
        self.namespace, _, self.name = job.partition("/")
        self.uid = uid
        self.down = False
        self.version = 1
        self.writes: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self._server.server_port)))

    def __enter__(self) -> Api:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def apply(self, body: dict[str, Any], dry: bool) -> tuple[int, dict[str, Any]]:
        """Answer to an apply."""
        if self.down:
            return 503, {"kind": "Status", "message": "the server is starting"}
        if self.uid is None:
            message = f'federatedjobs.fedsilo.io "{self.name}" not found'
            return 404, {"kind": "Status", "message": message, "details": {"name": self.name}}
        if body["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            return 409, {"kind": "Status", "message": "the object has been modified"}
        if not dry:
            self.version += 1
            self.writes.append(body["status"])
        return 200, {"metadata": {"uid": self.uid, "resourceVersion": str(self.version)}}


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "aggregator"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "aggregator", "user": {"token": "sesame"}}],
    }


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        @override
        def log_message(self, *_: Any) -> None:
            """The test looks at `requests`."""

        def do_PATCH(self) -> None:
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.requests.append((path, query))
            assert self.headers["Content-Type"] == "application/apply-patch+yaml"
            assert self.headers["Authorization"] == "Bearer sesame"
            status, answer = api.apply(body, dry="dryRun" in query)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
