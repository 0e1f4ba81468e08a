"""What an account may do, as `kubectl auth can-i --list` says it."""

from __future__ import annotations

from hack.cluster.kubectl import Kubectl, KubectlError


def rights(account: Kubectl, namespace: str) -> str:
    """The table of an account's rights on resources; paths that are no resources are what every account may read."""
    lines = account.run("auth", "can-i", "--list", "-n", namespace).splitlines()
    return "".join(f"{line}\n" for line in sorted(line.rstrip() for line in lines if line[0] != " "))


def may(account: Kubectl, what: str) -> bool:
    """Whether an account may do something, in the words of `kubectl auth can-i`."""
    try:
        account.run("auth", "can-i", "--quiet", *what.split())
    except KubectlError:
        return False
    return True
