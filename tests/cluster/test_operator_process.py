"""The operator as processes with its own account against a real API server: start, lead, take over, stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from fedsilo.wire import issue_server, make_authority
from fedsilo_operator.runtime.election import LEASE_SECONDS
from hack.cluster.apiserver import api_server
from hack.cluster.client import healthy
from hack.cluster.kubectl import Kubectl
from tests.cluster.namespace import Namespace, wait_until
from tests.metrics_page import documented_metrics
from tests.pages import runs
from tests.paths import ROOT
from tests.scraping import scrape
from tests.terminal import Terminal

SYSTEM = "fedsilo-system"

EXIT_SECONDS = 10
"""In which an operator ends that was told to: what its pod is given."""


class Process:
    """One operator, ended with the test."""

    def __init__(self, name: str, kubeconfig: Path, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.name = name
        self.log = folder / f"{name}.log"
        images = [f"--{role}-image={role}:test" for role in ("aggregator", "guard", "trainer")]
        command = [sys.executable, "-m", "fedsilo_operator", *images, "--namespace", SYSTEM]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--identity", name, "--health-port", str(self.port), *options],
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stderr=log,
            )

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return healthy(f"http://127.0.0.1:{self.port}/readyz")

    def ended_by(self, number: int) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(EXIT_SECONDS)


@pytest.fixture(scope="module")
def api() -> Iterator[Kubectl]:
    """The administrator's kubectl of an API server with Kubernetes' own controllers."""
    with api_server("operator", controllers=True) as kubeconfig:
        kubectl = Kubectl(kubeconfig)
        kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all")
        yield kubectl


@pytest.fixture
def account(api: Kubectl, tmp_path: Path) -> Path:
    """A kubeconfig with nothing but a token of the operator's account."""
    content = yaml.safe_load(api.kubeconfig.read_text())
    token = api.run("create", "token", "fedsilo-operator", "-n", SYSTEM).strip()
    content["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


@contextmanager
def operator(name: str, account: Path, folder: Path, *options: str) -> Iterator[Process]:
    started = Process(name, account, folder, *options)
    try:
        wait_until(started.ready, f"{name} ready")
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def test_one_leads_the_other_takes_over_and_stops_when_told(
    api: Kubectl, account: Path, tmp_path: Path
) -> None:
    system = Namespace(api, SYSTEM)

    def leader() -> str:
        lease = system.find("lease", "fedsilo-operator")
        return str(lease["spec"].get("holderIdentity", "")).partition("_")[0] if lease else ""

    with ExitStack() as stack:
        first, second = (
            stack.enter_context(operator(name, account, tmp_path)) for name in ("first", "second")
        )
        wait_until(leader, "a leader")
        assert leader() == "first"
        api.run("apply", "--server-side", "-f", str(ROOT / "examples" / "quickstart.yaml"))
        wait_until(
            lambda: all(silo["status"].get("publicKey") for silo in _list_all(api, "silos")), "keys of silos"
        )
        wait_until(lambda: len(_list_all(api, "jobs.batch")) >= 4, "trainers and guards")
        leads, stands_by = scrape(first.port), scrape(second.port)
        assert leads.declared == stands_by.declared == documented_metrics()["operator"]
        assert (leads.value("fedsilo_leader"), stands_by.value("fedsilo_leader")) == (1, 0)
        assert leads.values("fedsilo_job_state", job_name="digits")
        assert not stands_by.values("fedsilo_job_state")

        first.ended_by(signal.SIGKILL)
        wait_until(lambda: leader() == "second", "a new leader", 2 * LEASE_SECONDS)
        assert second.ended_by(signal.SIGTERM) == 0
        assert leader() == "", "the lease was given back"
        for log in (first.log.read_text(), second.log.read_text()):
            for word in ("Traceback", "forbidden", "defect"):
                assert word not in log, log


def test_a_cluster_without_definitions_is_waited_for_with_a_message(tmp_path: Path) -> None:
    with api_server("operator-bare") as kubeconfig:
        kubectl = Kubectl(kubeconfig)
        kubectl.run("create", "namespace", SYSTEM)
        started = Process("bare", kubeconfig, tmp_path)
        try:
            wait_until(lambda: "custom resource definitions" in started.log.read_text(), "a word about it")
            assert not healthy(f"http://127.0.0.1:{started.port}/readyz")
            assert healthy(f"http://127.0.0.1:{started.port}/healthz")
            assert started.ended_by(signal.SIGTERM) == 0
        finally:
            started.process.kill()
            started.process.wait()


@runs(
    "docs/dashboard.md",
    "kubectl create serviceaccount office -n federation",
    "kubectl create role jobs --verb=list --resource=federatedjobs.fedsilo.io -n federation",
    "kubectl create rolebinding office --role=jobs --serviceaccount=federation:office -n federation",
    "kubectl create token office --duration=8h -n federation",
)
def test_the_dashboard_is_for_those_whose_token_may_list_jobs(
    api: Kubectl, account: Path, tmp_path: Path, terminal: Terminal
) -> None:
    terminal.environment["KUBECONFIG"] = str(api.kubeconfig)
    authority = make_authority()
    certificate, key = issue_server(authority, ["127.0.0.1"])
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    trust = ssl.create_default_context(cadata=authority.cert_pem.decode())
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]

    def ask(who: str | None) -> tuple[int, set[str]]:
        request = urllib.request.Request(f"https://127.0.0.1:{port}/api/jobs")
        if who is not None:
            request.add_header("Authorization", f"Bearer {who}")
        try:
            with urllib.request.urlopen(request, context=trust, timeout=10) as response:
                return response.status, {job["namespace"] for job in json.load(response)["jobs"]}
        except urllib.error.HTTPError as refusal:
            return refusal.code, set()

    api.run("apply", "--server-side", "-f", str(ROOT / "examples" / "quickstart.yaml"))
    resources = "tokenreviews.authentication.k8s.io,subjectaccessreviews.authorization.k8s.io"
    api.run("create", "clusterrole", "reviews", "--verb=create", f"--resource={resources}")
    operator_ = f"--serviceaccount={SYSTEM}:fedsilo-operator"
    api.run("create", "clusterrolebinding", "reviews", "--clusterrole=reviews", operator_)
    api.run("create", "serviceaccount", "stranger", "-n", SYSTEM)
    stranger = api.run("create", "token", "stranger", "-n", SYSTEM).strip()
    *_, office = (terminal.type(command).strip() for command in terminal.commands)
    options = ("--dashboard-port", str(port), "--dashboard-tls", str(tmp_path))
    with operator("shown", account, tmp_path, *options):
        assert ask(None) == (401, set())
        assert ask("no token of this cluster") == (401, set())
        assert ask(stranger) == (403, set())
        assert ask(office) == (200, {"federation"})


def _list_all(api: Kubectl, kind: str) -> list[dict[str, dict[str, str]]]:
    return [{"status": {}} | item for item in api.get(kind, "-A")["items"]]
