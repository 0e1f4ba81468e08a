"""An institution's forward proxy: Debian's squid, which lets one name and one port pass."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hack.cluster.packages import ensure
from hack.cluster.premises import HUB_NAME, Premises
from tests.cluster.institutions.edges import PORT as HUB_PORT
from tests.cluster.namespace import wait_until

PORT = 3128
USER, PASSWORD = "lab", "correct horse"

_CONFIG = """\
http_port {address}:{port}
visible_hostname proxy.example
hosts_file {folder}/hosts
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
access_log stdio:{folder}/access.log
logfile_rotate 0
cache deny all
cache_mem 8 MB
pinger_enable off
shutdown_lifetime 0 seconds
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
acl known proxy_auth REQUIRED
acl connect method CONNECT
acl hub dstdomain {hub}
acl hub_port port {hub_port}
http_access deny !connect
http_access deny !hub
http_access deny !hub_port
http_access allow {who}
http_access deny all
"""


@dataclass(frozen=True)
class ForwardProxy:
    """The proxy that runs.

    :param url: what `HTTPS_PROXY` names, credentials included.
    :param folder: of its logs.
    """

    url: str
    folder: Path

    def requests(self) -> list[str]:
        """What passed or was refused, a line each (squid's native format)."""
        return (self.folder / "access.log").read_text().splitlines()


@contextmanager
def forward_proxy(place: Premises, address: str, *, credentials: bool = True) -> Iterator[ForwardProxy]:
    """squid for as long as the block runs.

    :param place: where it runs, from which the hub is reached.
    :param address: its own, as those see it who may use it.
    :param credentials: whether it asks for them.
    """
    ensure("squid")
    with TemporaryDirectory(prefix="squid-") as folder:
        yield from _run(place, address, Path(folder), credentials)


def _run(place: Premises, address: str, folder: Path, credentials: bool) -> Iterator[ForwardProxy]:
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", PASSWORD], check=True, capture_output=True, text=True
    ).stdout
    (folder / "users").write_text(f"{USER}:{hashed}")
    (folder / "hosts").write_text(f"{place.gateway} {HUB_NAME}\n")
    config = folder / "squid.conf"
    who = "known" if credentials else "all"
    config.write_text(
        _CONFIG.format(address=address, port=PORT, folder=folder, hub=HUB_NAME, hub_port=HUB_PORT, who=who)
    )
    # squid gives up being root. The folder is none of pytest's, which another session of it would close to others.
    shutil.chown(folder, "proxy", "proxy")
    command = place.command("squid", "-N", "-f", str(config))
    with (
        (folder / "squid.log").open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            log = folder / "cache.log"
            wait_until(lambda: log.exists() and "Accepting HTTP" in log.read_text(), f"squid: {log}", 30)
            login = f"{USER}:{PASSWORD.replace(' ', '%20')}@" if credentials else ""
            yield ForwardProxy(f"http://{login}{address}:{PORT}", folder)
        finally:
            process.kill()
