"""Network of the node: a bridge, addresses for pods, and packet filter rules."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.packages import SEARCH
from hack.cluster.paths import ADDRESS, BRIDGE, PODS
from hack.cluster.runtime import MTU

CHAIN = "FEDSILO-CLUSTER"
PREFIXES = (CHAIN, "KUBE-", "CNI-")
SET_PREFIXES = ("KUBE-", "kube-router-")
_MAC = "0a:58:0a:f4:00:01"  # fixed, or the bridge would take that of a pod, and another one when the pod goes

# Pods reach the outside under the machine's address; a firewall that drops forwarded packets lets theirs pass.
_RULES = f"""\
*nat
:{CHAIN} - [0:0]
-A {CHAIN} -s {PODS} ! -d {PODS} ! -o {BRIDGE} -j MASQUERADE
-A POSTROUTING -j {CHAIN}
COMMIT
*filter
:{CHAIN} - [0:0]
-A {CHAIN} -i {BRIDGE} -j ACCEPT
-A {CHAIN} -o {BRIDGE} -j ACCEPT
-A FORWARD -j {CHAIN}
COMMIT
"""


def set_up() -> None:
    """Make the bridge and our own rules.

    :raises ClusterError: naming the command that failed.
    """
    if shutil.which(
        "modprobe", path=SEARCH
    ):  # otherwise, or where that fails, they are built into the kernel
        subprocess.run(
            ["modprobe", "--all", "br_netfilter", "overlay", "ip_set"], check=False, capture_output=True
        )
    _run("ip", "link", "add", BRIDGE, "address", _MAC, "mtu", str(MTU), "type", "bridge")
    if (no_ipv6 := Path(f"/proc/sys/net/ipv6/conf/{BRIDGE}/disable_ipv6")).exists():
        no_ipv6.write_text("1")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    for name in ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"):
        Path("/proc/sys", name).write_text("1")
    _run("iptables-restore", "--noflush", stdin=_RULES)


def links() -> list[str]:
    """The bridge and the links that hang on it."""
    found = []
    for link in json.loads(_run("ip", "-json", "link", "show") or "[]"):
        if link.get("ifname") == BRIDGE or link.get("master") == BRIDGE:
            found.append(link["ifname"])
    return sorted(found, key=lambda name: name == BRIDGE)  # the bridge last


def remove_links() -> int:
    """Delete the bridge and its links; how many there were."""
    found = links()
    for name in found:
        subprocess.run(
            ["ip", "link", "delete", name], check=False, capture_output=True
        )  # its pair may have taken it
    return len(found)


def forget_connections() -> None:
    """Drop the kernel's records of pods' connections, so that the next cluster's addresses do not inherit them."""
    for direction in ("--src", "--dst"):
        subprocess.run(["conntrack", "--delete", direction, PODS], check=False, capture_output=True)


def chains() -> set[str]:
    """Our chains, Kubernetes's and CNI's, as `family table chain`."""
    return {f"{family} {name}" for family in _FAMILIES for name in chains_in(_save(family))}


def remove_chains(keep: Collection[str]) -> int:
    """Remove those chains and every rule that refers to them; how many there were."""
    removed = 0
    for family in _FAMILIES:
        kept = {name.partition(" ")[2] for name in keep if name.startswith(f"{family} ")}
        saved = _save(family)
        doomed = chains_in(saved) - kept
        if doomed:
            _run(f"{family}-restore", "--noflush", stdin=removal(saved, doomed))
            removed += len(doomed)
    return removed


_FAMILIES = ("iptables", "ip6tables")


def chains_in(saved: str) -> set[str]:
    """Chains with one of our prefixes in the output of iptables-save, as `table chain`."""
    found, table = set(), ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and (name := line[1:].split()[0]).startswith(PREFIXES):
            found.add(f"{table} {name}")
    return found


def removal(saved: str, doomed: Collection[str]) -> str:
    """Input for iptables-restore that removes `doomed` chains, and nothing else.

    :param saved: the output of iptables-save.
    :param doomed: chains as `table chain`.
    """
    script: list[str] = []
    here: set[str] = set()
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:]
            here = {name.partition(" ")[2] for name in doomed if name.startswith(f"{table} ")}
            if here:
                script.append(line)
                script += [f":{name} - [0:0]" for name in sorted(here)]  # that flushes it
        elif line.startswith("-A") and here:
            words = shlex.split(line)  # comments are quoted, and may contain anything
            jump = next((words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-j", "-g")), "")
            if jump in here and words[1] not in here:
                script.append("-D" + line[2:])
        elif line == "COMMIT" and here:
            script += [f"-X {name}" for name in sorted(here)]
            script.append(line)
    return "\n".join([*script, ""])


def sets() -> set[str]:
    """Names of the IP sets with one of our prefixes."""
    names = _run("ipset", "list", "-name").split()
    return {name for name in names if name.removeprefix("inet6:").startswith(SET_PREFIXES)}


def remove_sets(keep: Collection[str]) -> int:
    """Destroy those IP sets, which no rule refers to any more; how many there were."""
    doomed = sets() - set(keep)
    for name in doomed:
        _run("ipset", "destroy", name)
    return len(doomed)


def resolv_conf(candidates: tuple[Path, ...]) -> tuple[Path, bool]:
    """The file with name servers that a pod can reach too, and whether there is one."""
    for path in candidates:
        if path.exists() and any(not server.startswith("127.") for server in name_servers(path.read_text())):
            return path, True
    return candidates[-1], False


def name_servers(text: str) -> list[str]:
    """Addresses in a resolv.conf(5)."""
    words = [line.split() for line in text.splitlines()]
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]


def _save(family: str) -> str:
    done = subprocess.run([f"{family}-save"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""  # a kernel without IPv6 has no rules for it


def _run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
