"""The line between institution and hub: of so many gigabits a second, in a network namespace of its own.

    unshare --net python -m benchmarks.gateway --link 1

The kernel shapes what a silo exchanges with the one port that it talks to, on the loopback interface. What gateway and
aggregator exchange is not shaped: they are in one cluster.
"""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Line between a silo and the hub, with a limited rate.

    :param gigabits: a second, both directions together; 0 for the loopback interface as it is.
    """

    gigabits: float = 0

    def begin(self) -> None:
        """Bring up the loopback interface of a namespace that has nothing else.

        :raises SystemExit: in any other namespace, whose traffic is none of ours.
        """
        if not self.gigabits:
            return
        if [name for _, name in socket.if_nameindex()] != ["lo"]:
            raise SystemExit("--link: other interfaces are here; run it under `unshare --net`")
        _run("ip link set lo up")
        _run("tc qdisc add dev lo root handle 1: htb")
        _run(
            f"tc class add dev lo parent 1: classid 1:1 htb rate {self.gigabits * 1000:g}mbit burst 1mb quantum 65536"
        )

    def lead_to(self, port: int) -> None:
        """The silo talks to this port from now on."""
        if not self.gigabits:
            return
        _run("tc filter del dev lo parent 1:")
        for side in ("sport", "dport"):
            match = f"u32 match ip {side} {port} 0xffff"
            _run(f"tc filter add dev lo parent 1: protocol ip {match} flowid 1:1")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)
