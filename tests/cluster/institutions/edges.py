"""What stands between institutions and the gateway: on the hub's side, with Debian's own nginx and haproxy."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.cluster.certificates import Pair
from hack.cluster.packages import ensure
from tests.cluster.namespace import until

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


@contextmanager
def nginx(folder: Path, gateway: str, certificate: Pair) -> Iterator[None]:
    """TLS ends here; the gateway speaks HTTP.

    :param gateway: its address, `host:port`.
    """
    ensure("nginx")
    _write(folder, certificate)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=PORT, gateway=gateway))
    with _serving(["nginx", "-p", str(folder), "-c", str(config)], folder):
        yield


@contextmanager
def haproxy(folder: Path, gateway: str, certificate: Pair | None = None) -> Iterator[None]:
    """TLS ends here, and the gateway speaks HTTP.

    :param gateway: its address, `host:port`.
    :param certificate: when None, connections are passed on as they are, and TLS ends in the gateway.
    """
    ensure("haproxy")
    tls = ""
    if certificate is not None:
        _write(folder, certificate)
        tls = f" ssl crt {folder}/edge.pem"
    config = folder / "haproxy.cfg"
    mode = "http" if certificate else "tcp"
    config.write_text(_HAPROXY.format(mode=mode, port=PORT, tls=tls, gateway=gateway))
    with _serving(["haproxy", "-db", "-f", str(config)], folder):
        yield


def _write(folder: Path, certificate: Pair) -> None:
    (folder / "edge.pem").write_bytes(certificate.cert + certificate.key)


@contextmanager
def _serving(command: Sequence[str], folder: Path) -> Iterator[None]:
    """A server for as long as the block runs; what it says is in `edge.log`."""
    log = folder / "edge.log"
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            until(lambda: _listens(process, log), f"{command[0]} to listen", 20)
            yield
        finally:
            process.terminate()


def _listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, f"it has ended: {log.read_text()}"
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", PORT)) == 0
