"""What a node would do with the pods of a release's hooks, where an API server has none."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from hack.cluster.kubectl import Kubectl

COLUMNS = "custom-columns=:metadata.namespace,:metadata.name,:status.phase"


@contextmanager
def pods_run_here(kubectl: Kubectl, folder: Path) -> Iterator[None]:
    """Every pod is a script and runs on this machine, with its account's token, as long as the block runs.

    :param folder: for tokens.
    """
    watch = ("get", "pods", "-A", "--watch", "--no-headers", f"--output={COLUMNS}")
    with subprocess.Popen(kubectl.command(*watch), stdout=subprocess.PIPE, text=True) as watching:

        def run_all() -> None:
            for line in watching.stdout or ():
                namespace, name, phase = line.split()
                if phase == "Pending":
                    _run(kubectl, namespace, name, folder / f"account-{name}")

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_all)
            try:
                yield
            finally:
                watching.terminate()
                running.result()


def _run(kubectl: Kubectl, namespace: str, name: str, account: Path) -> None:
    """Run a pod's script, and report how it ended."""
    spec = kubectl.get("pod", name, "-n", namespace)["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["python", "-c"]
    (cluster,) = yaml.safe_load(kubectl.kubeconfig.read_text())["clusters"]
    server = urlsplit(cluster["cluster"]["server"])
    account.mkdir()
    token = kubectl.run("create", "token", spec["serviceAccountName"], "-n", namespace)
    (account / "token").write_text(token.strip())
    (account / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    where = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
    command = [sys.executable, "-c", *container["args"], "60", str(account)]
    done = subprocess.run(command, env=os.environ | where, capture_output=True, text=True, timeout=90)
    print(f"pod {namespace}/{name}: {done.stdout}{done.stderr}")
    phase = "Failed" if done.returncode else "Succeeded"
    status = f'{{"status":{{"phase":"{phase}"}}}}'
    kubectl.run("patch", "pod", name, "-n", namespace, "--subresource=status", "-p", status)
