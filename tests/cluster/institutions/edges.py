"""What stands between institutions and the gateway: on the hub's side, with Debian's own nginx and haproxy."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hack.cluster.certificates import Pair
from hack.cluster.packages import ensure
from tests.cluster.namespace import wait_until

PORT = 8443

_NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {port} ssl;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {folder}/edge.pem;
    ssl_certificate_key {folder}/edge.pem;
    client_max_body_size 0;
    location /v1/ {{
      proxy_pass http://{gateway};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_read_timeout 90s;
      proxy_send_timeout 90s;
    }}
  }}
}}
"""

_HAPROXY = """\
global
  maxconn 256
defaults
  mode {mode}
  timeout connect 5s
  timeout client 90s
  timeout server 90s
  timeout tunnel 1h
frontend institutions
  bind :{port}{tls}
  default_backend gateway
backend gateway
  server gateway {gateway}
"""


Edge = Callable[[Path, str, Pair], AbstractContextManager[None]]
"""What serves on `PORT` of the hub's side, with a folder for its files, before a gateway at `host:port`."""


@contextmanager
def balancer(folder: Path, gateway: str, certificate: Pair) -> Iterator[None]:
    """Connections are passed on as they are: TLS, and so the certificate, is the gateway's own matter."""
    with _haproxy(folder, gateway, mode="tcp", tls=""):
        yield


@contextmanager
def haproxy(folder: Path, gateway: str, certificate: Pair) -> Iterator[None]:
    """Run haproxy, which ends TLS before a gateway that speaks HTTP."""
    with _haproxy(folder, gateway, mode="http", tls=f" ssl crt {_write_certificate(folder, certificate)}"):
        yield


@contextmanager
def nginx(folder: Path, gateway: str, certificate: Pair) -> Iterator[None]:
    """Run nginx, which ends TLS before a gateway that speaks HTTP."""
    ensure("nginx")
    _write_certificate(folder, certificate)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=PORT, gateway=gateway))
    with _serving(["nginx", "-p", str(folder), "-c", str(config)], folder):
        yield


@contextmanager
def _haproxy(folder: Path, gateway: str, *, mode: str, tls: str) -> Iterator[None]:
    ensure("haproxy")
    config = folder / "haproxy.cfg"
    config.write_text(_HAPROXY.format(mode=mode, port=PORT, tls=tls, gateway=gateway))
    with _serving(["haproxy", "-db", "-f", str(config)], folder):
        yield


def _write_certificate(folder: Path, certificate: Pair) -> Path:
    file = folder / "edge.pem"
    file.write_bytes(certificate.cert + certificate.key)
    return file


@contextmanager
def _serving(command: Sequence[str], folder: Path) -> Iterator[None]:
    """A server for as long as the block runs; what it says is in `edge.log`."""
    log = folder / "edge.log"
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: _listens(process, log), f"{command[0]} to listen", 20)
            yield
        finally:
            process.terminate()


def _listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, f"it has ended: {log.read_text()}"
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", PORT)) == 0
