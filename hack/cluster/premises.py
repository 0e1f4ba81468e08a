"""Places apart from the hub on this machine: network namespaces that may connect out, and into which nothing connects.

Each hangs on one link to the machine's own namespace, where the hub is. Addresses and ports within are its own, so that
an institution's cluster has those of the hub's.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.packages import ensure
from hack.cluster.paths import INSTITUTIONS

NAMESPACES = Path("/run/netns")
HUB_NAME = "hub.example"
"""What the hub is called in an institution's DNS."""

_UPLINK = "eth0"
_NETWORK = "198.51.100"  # TEST-NET-2 (RFC 5737), which nobody routes; the first four addresses are a test's
_DROP_RULE = ("PREROUTING", "-i", _UPLINK, "-m", "conntrack", "--ctstate", "NEW,INVALID", "-j", "DROP")


@dataclass(frozen=True)
class Premises:
    """A network namespace with a link to another one, the machine's own by default.

    :param number: of its pair of addresses.
    :param outside: the namespace on the other end, which must exist; the machine's own when None.
    :param routed: whether everything goes to the other end; otherwise only that end itself can be reached.
    """

    name: str
    number: int
    outside: Premises | None = None
    routed: bool = True

    @property
    def namespace(self) -> str:
        """Name of the network namespace for ip-netns(8), and of the outer end of its link."""
        return f"fedsilo-{self.name}"

    @property
    def address(self) -> str:
        """IP address of the link's inner end."""
        return f"{_NETWORK}.{4 * self.number + 2}"

    @property
    def gateway(self) -> str:
        """IP address of the link's outer end, by which the outside is reached from within."""
        return f"{_NETWORK}.{4 * self.number + 1}"

    def command(self, *arguments: str) -> list[str]:
        """A command line that runs within. Files and control groups stay those of the machine."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", *arguments]

    def make(self) -> None:
        """Make the namespace and its link, unless they are there.

        :raises ClusterError: naming the command that failed.
        """
        ensure("ip", "iptables")
        if self.exists():
            return
        self.remove()
        inner = ["netns", self.namespace]
        _run("ip", "netns", "add", self.namespace)
        try:
            self._run_outside(
                "ip", "link", "add", self.namespace, "type", "veth", "peer", "name", _UPLINK, *inner
            )
            self._run_outside("ip", "address", "add", f"{self.gateway}/30", "dev", self.namespace)
            self._run_outside("ip", "link", "set", self.namespace, "up")
            _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
            _run("ip", "-n", self.namespace, "address", "add", f"{self.address}/30", "dev", _UPLINK)
            _run("ip", "-n", self.namespace, "link", "set", _UPLINK, "up")
            if self.routed:
                _run("ip", "-n", self.namespace, "route", "add", "default", "via", self.gateway)
            # Before routing and every other rule, so that none of Kubernetes's can let anything in.
            _run(*self.command("iptables", "--table", "mangle", "--append", *_DROP_RULE))
        except ClusterError:
            self.remove()
            raise

    def exists(self) -> bool:
        """Whether namespace and link are there, as `make` leaves them."""
        if not (NAMESPACES / self.namespace).exists():
            return False
        closed = self.command("iptables", "--table", "mangle", "--check", *_DROP_RULE)
        found = json.loads(_run(*self._from_outside("ip", "-json", "link", "show")))
        return (
            any(link["ifname"] == self.namespace for link in found)
            and subprocess.run(closed, capture_output=True).returncode == 0
        )

    def remove(self) -> None:
        """Remove both, if they are there. What still runs within keeps the namespace, without its name."""
        link = self._from_outside("ip", "link", "delete", self.namespace)
        subprocess.run(link, check=False, capture_output=True)
        if (NAMESPACES / self.namespace).exists():
            _run("ip", "netns", "delete", self.namespace)

    def cut(self) -> None:
        """Take the link down: nothing passes, and nobody is told."""
        self._run_outside("ip", "link", "set", self.namespace, "down")

    def mend(self) -> None:
        """Bring the link up again."""
        self._run_outside("ip", "link", "set", self.namespace, "up")

    def _run_outside(self, *command: str) -> None:
        _run(*self._from_outside(*command))

    def _from_outside(self, *command: str) -> list[str]:
        return list(command) if self.outside is None else self.outside.command(*command)


def of_institution(name: str) -> Premises:
    """Where an institution's cluster runs."""
    return Premises(name, 1 + INSTITUTIONS.index(name))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
