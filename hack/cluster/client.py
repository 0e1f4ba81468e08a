"""Just enough of an HTTP client for health checks and the Kubernetes API."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def healthy(address: str) -> bool:
    """Whether a component answers 200; its certificate may be one that it made itself."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(address, timeout=2, context=trusting) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class Client:
    """The Kubernetes API with the administrator's certificate of a control plane."""

    server: str
    pki: Path

    def get(self, path: str) -> Any:
        """The object or list at `path`; None when there is none.

        :raises OSError: when the server cannot be reached or refuses.
        """
        return self._send("GET", path)

    def create(self, path: str, body: object) -> None:
        """Create an object in the API server; one of that name may exist already."""
        self._send("POST", path, body)

    def merge(self, path: str, body: object) -> None:
        """Merge `body` into the object at `path` (RFC 7386)."""
        self._send("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        self._send("DELETE", path)

    def _send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method)
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (404, 409):
                    return None
                raise OSError(
                    f"{method} {path}: {error.code} {error.read(500).decode(errors='replace')}"
                ) from None
