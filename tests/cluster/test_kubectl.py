"""The commands of docs/kubectl.md on a job that waits for an institution, runs, loses a trainer and has a model."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.kubectl import Kubectl
from tests.cluster.federation import ClusterFederation, example, signal
from tests.cluster.namespace import Namespace, wait_until
from tests.pages import runs
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(600)

JOB = "digits"
SILOS = ("north", "east")
ROUNDS = 40
AGENT = "digits-north-1a2b3c4d"
"""What the page calls the SiloAgent; its end is another in every cluster."""


def research() -> list[dict[str, Any]]:
    """The federation that the page speaks of: two silos, and one of them wants to be asked."""
    refs = [{"namespace": f"silo-{name}", "name": name} for name in SILOS]
    objects = example(
        "fedavg.yaml",
        silos={"refs": refs},
        participation={"minSilos": len(SILOS), "roundDeadline": "5m"},
        training={"rounds": ROUNDS, "localEpochs": 1},
    )
    names = {"federation", *(ref["namespace"] for ref in refs)}
    found = []
    for item in objects:
        metadata, kind = item["metadata"], item["kind"]
        if (metadata["name"] if kind == "Namespace" else metadata["namespace"]) not in names:
            continue
        if kind == "Silo" and metadata["name"] == "north":
            item["spec"]["policy"]["manualApproval"] = True
        if kind == "FederatedJob":
            metadata |= {"name": JOB, "namespace": "research"}
        if kind == "Namespace" and metadata["name"] == "federation":
            metadata["name"] = "research"
        found.append(item)
    return found


@pytest.fixture(scope="module")
def waiting(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """The job, which north has been asked about."""
    found = ClusterFederation(kubectl, tuple(research()))
    found.remove(wait=True)
    found.apply()
    try:
        wait_until(lambda: agents(found), "the SiloAgent of north")
        wait_until(lambda: "ApprovalPending" in json.dumps(found.status()), "the question to north")
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="module")
def running(waiting: ClusterFederation) -> ClusterFederation:
    """The job with a complete round."""
    waiting.kubectl.fedsilo("approve", agents(waiting)[0], "-n", "silo-north", "--yes")
    waiting.round_reached(1)
    return waiting


@pytest.fixture(scope="module")
def complete(running: ClusterFederation) -> ClusterFederation:
    """The job with a model."""
    running.wait_complete()
    return running


@pytest.fixture
def terminal(terminal: Terminal, kubectl: Kubectl) -> Terminal:
    """A checkout's terminal for somebody who works in the job's namespace."""
    config = terminal.folder / "kubeconfig"
    config.write_bytes(kubectl.kubeconfig.read_bytes())
    terminal.environment["KUBECONFIG"] = str(config)
    Kubectl(config).run("config", "set-context", "--current", "--namespace=research")
    return terminal


def agents(found: ClusterFederation) -> list[str]:
    """Names of north's SiloAgents."""
    return [item["metadata"]["name"] for item in found.silo("north").select("siloagents")]


def decision(found: ClusterFederation) -> tuple[str, str]:
    """What the Silo says about the job, and the note."""
    (entry,) = found.silo("north").get("silo", "north")["spec"]["policy"]["approvals"]
    return entry["decision"], entry.get("note", "")


@runs(
    "docs/kubectl.md",
    "kubectl fedsilo why digits -n research",
    "kubectl fedsilo approve -n silo-north",
    'kubectl fedsilo refuse digits-north-1a2b3c4d -n silo-north --note "not this year" --yes',
    'kubectl fedsilo approve digits-north-1a2b3c4d -n silo-north --note "ethics vote 2026-17"',
)
def test_an_institution_decides(waiting: ClusterFederation, terminal: Terminal) -> None:
    (agent,) = agents(waiting)
    why, listed, refuse, approve = terminal.commands
    said = terminal.type(why)
    assert (
        said.startswith("Job research/digits ") and "kubectl fedsilo approve" in said and "silo-north" in said
    )
    header, row = terminal.type(listed).splitlines()
    assert header.split() == ["siloagent", "job", "silo", "method", "age"]
    assert row.split()[:4] == [agent, "research/digits", "north", "fedavg"]

    said = terminal.type(refuse, {AGENT: agent})
    assert said.endswith("silo silo-north/north has refused job research/digits\n")
    assert decision(waiting) == ("Refused", "not this year")
    assert "no job waits" in terminal.type(listed)
    wait_until(lambda: "not this year" in json.dumps(waiting.status()), "the consortium to be told")

    said = terminal.type(approve, {AGENT: agent}, answer="no")
    assert said.endswith("nothing was decided\n")
    assert decision(waiting)[0] == "Refused"
    said = terminal.type(approve, {AGENT: agent}, answer="yes")
    assert "Approve this job? [y/N]" in said
    assert said.endswith("silo silo-north/north has approved job research/digits\n")
    assert decision(waiting) == ("Approved", "ethics vote 2026-17")


@runs(
    "docs/kubectl.md",
    "kubectl fedsilo status digits -n research --watch",
    "kubectl fedsilo logs digits -n research --silo north --follow",
    "kubectl fedsilo logs digits -n research --silo north --component trainer --previous",
)
def test_a_job_is_watched_while_a_trainer_dies_and_comes_back(
    running: ClusterFederation, terminal: Terminal
) -> None:
    watch, follow, previous = terminal.commands
    north = running.silo("north")
    with terminal.start_command(watch) as watching, terminal.start_command(follow) as following:
        first = running.pod(north, "trainer")
        log = north.logs(first)
        signal(north, first, "SIGKILL")
        running.pod(north, "trainer", besides=first)
        said = terminal.type(previous)
        assert len(said.splitlines()) >= len(log.splitlines()) > 0
        present = running.kubectl.fedsilo(
            "logs", JOB, "-n", "research", "--silo", "north", "--component", "trainer"
        )
        assert said != present
        running.wait_complete()
        watched, followed = command_output(watching), command_output(following)
    pages = watched.split("\n\nresearch/digits  ")
    assert "Running" in pages[0].splitlines()[0] and "Complete" in pages[-1].splitlines()[0]
    assert len(pages) > 2, "it was shown anew"
    guard, trainer = (
        [line for line in followed.splitlines() if line.startswith(f"[north/{part}] ")]
        for part in ("guard", "trainer")
    )
    assert len(guard) + len(trainer) == len(followed.splitlines())
    assert sum(" departure: " in line for line in guard) >= ROUNDS - 1, "it was followed to the end"
    assert 0 < len(trainer) < len(guard), "it stays with the pod that died"


def command_output(process: subprocess.Popen[str]) -> str:
    """What a command that ends by itself has said."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    return out


@runs(
    "docs/kubectl.md",
    "kubectl fedsilo status",
    "kubectl fedsilo logs digits -n research --silo north",
    "kubectl fedsilo model digits -n research -o model.safetensors",
)
def test_a_job_that_is_complete(complete: ClusterFederation, terminal: Terminal) -> None:
    status, logs, model = terminal.commands
    header, row = terminal.type(status).splitlines()
    assert header.split()[:4] == ["job", "state", "round", "silos"]
    assert row.split()[:4] == ["digits", "Complete", f"{ROUNDS}/{ROUNDS}", "2/2"]
    parts = {line.partition(" ")[0] for line in terminal.type(logs).splitlines()}
    assert parts == {"[north/guard]", "[north/trainer]"}
    terminal.type(model)
    fetched = (terminal.folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(fetched).hexdigest() == complete.status()["model"]["sha256"]
    assert json.loads((terminal.folder / "model.json").read_text())["job"]["name"] == JOB
