"""What the pods of a job said, and why one says nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedsilo.cli.main import main
from tests.unit.cli.fake_kubectl import FakeKubectl, forbidden
from tests.unit.cli.objects import condition, entry, job, pod
from tests.unit.cli.waiting_cases import NO_GPU

SILOS = [entry("north", phase="Running"), entry("east", phase="Starting", message=NO_GPU)]
PENDING_POD = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    ],
}
PULLING = {
    "phase": "Pending",
    "containerStatuses": [
        {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'image "x" not found'}}}
    ],
}
PROGRAM = {"state": {"waiting": {"reason": "PodInitializing"}}}
LOOKS = {
    "phase": "Pending",
    "initContainerStatuses": [{"state": {"running": {}}}],
    "containerStatuses": [PROGRAM],
}
REFUSED_POD = {
    "phase": "Failed",
    "initContainerStatuses": [
        {
            "state": {
                "terminated": {"exitCode": 5, "reason": "Error", "message": "10.96.0.1:443 can be reached"}
            }
        }
    ],
    "containerStatuses": [PROGRAM],
}
ENDED_POD = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}


@pytest.fixture
def federation(kubectl: FakeKubectl) -> FakeKubectl:
    """A job with an aggregator and one silo of two that runs."""
    kubectl.json("get federatedjobs.fedsilo.io digits .*", job(silos=SILOS))
    pods = [
        pod("trainer", "north"),
        pod("aggregator"),
        pod("guard", "north"),
        pod("trainer", "north", try_=2),
    ]
    kubectl.items("get pods --all-namespaces .*", *pods)
    kubectl.answer("logs digits-aggregator-1 --namespace research.*", {"out": "one\ntwo"})
    kubectl.answer("logs north-guard-1 --namespace silo-north.*", {"out": "three\n"})
    kubectl.answer("logs north-trainer-2 --namespace silo-north.*", {"out": "four\n"})
    kubectl.answer("logs north-trainer-1 --namespace silo-north.*", {"out": "a crash\n"})
    return kubectl


def test_every_line_says_who_wrote_it_and_silence_has_a_reason(
    federation: FakeKubectl, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["logs", "digits"]) == 0
    shown = capfdbinary.readouterr()
    assert shown.out.decode().splitlines() == [
        "[aggregator] one",
        "[aggregator] two",
        "[north/guard] three",
        "[north/trainer] four",
    ]
    assert shown.err.decode().splitlines() == [
        f"fedsilo: east/guard: no pod; Starting: {NO_GPU}",
        f"fedsilo: east/trainer: no pod; Starting: {NO_GPU}",
    ]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--component", "aggregator"], ["one", "two"]),
        (["--silo", "north"], ["[north/guard] three", "[north/trainer] four"]),
        (["--silo", "north", "--component", "trainer"], ["four"]),
        (["--silo", "north", "--component", "trainer", "--previous"], ["a crash"]),
        (["--component", "trainer"], ["[north/trainer] four"]),
    ],
)
def test_a_part_can_be_chosen(
    federation: FakeKubectl,
    capfdbinary: pytest.CaptureFixture[bytes],
    arguments: Sequence[str],
    lines: Sequence[str],
) -> None:
    assert main(["logs", "digits", *arguments]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == lines


def test_following_marks_every_line_and_asks_kubectl_to_follow(
    federation: FakeKubectl, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["logs", "digits", "-f"]) == 0
    assert set(capfdbinary.readouterr().out.decode().splitlines()) == {
        "[aggregator] one",
        "[aggregator] two",
        "[north/guard] three",
        "[north/trainer] four",
    }
    assert all("--follow" in call.words for call in federation.calls if call.words[0] == "logs")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--silo", "nort"], "--silo nort: job digits has no silo of that name; did you mean north?"),
        (
            ["--silo", "north", "--component", "aggregator"],
            "--component aggregator: is not in a silo; leave out --silo north",
        ),
        (["--silo", "east", "--component", "guard"], f"east/guard: no pod; Starting: {NO_GPU}"),
        (["--component", "aggregator", "--previous"], "aggregator: it has had one pod only"),
    ],
)
def test_what_cannot_be_shown_is_an_error(
    federation: FakeKubectl, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], line: str
) -> None:
    assert main(["logs", "digits", *arguments]) == 2
    assert capsys.readouterr().err == f"fedsilo: {line}\n"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (PENDING_POD, "Unschedulable: 0/3 nodes fit"),
        (PULLING, 'ImagePullBackOff: image "x" not found'),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        ({"phase": "Pending"}, "its container has not begun"),
        (LOOKS, "it begins when its network is seen to be closed"),
        (
            REFUSED_POD,
            "it did not begin, since the look at its network failed: Error: 10.96.0.1:443 can be reached",
        ),
    ],
)
def test_a_pod_without_a_log_says_why(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], status: dict[str, Any], reason: str
) -> None:
    kubectl.json("get federatedjobs.*", job())
    kubectl.items(
        "get pods .*", pod("aggregator", status=ENDED_POD), pod("aggregator", try_=2, status=status)
    )
    assert main(["logs", "digits", "--component", "aggregator"]) == 2
    assert capsys.readouterr().err == (
        f"fedsilo: aggregator: pod digits-aggregator-2 has no log yet: {reason}; --previous shows the pod before it\n"
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (job(condition("Running", "False", "PodRefused", "exceeded quota")), "no pod; exceeded quota"),
        (job(), "no pod; it starts when the agents of all silos run"),
        (job(condition("Complete", "True", "Complete")), "its pod is gone, since the job has ended"),
    ],
)
def test_no_aggregator_has_a_reason(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], found: dict[str, Any], reason: str
) -> None:
    kubectl.json("get federatedjobs.*", found)
    kubectl.items("get pods .*")
    assert main(["logs", "digits", "--component", "aggregator"]) == 2
    assert capsys.readouterr().err == f"fedsilo: aggregator: {reason}\n"


def test_namespaces_that_are_closed_are_named(
    kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.json("get federatedjobs.*", job(silos=[entry("north", phase="Running")]))
    kubectl.refuse("get pods --all-namespaces .*", forbidden("list", "pods", ""))
    kubectl.items("get pods .* --namespace research .*", pod("aggregator"))
    kubectl.refuse("get pods .* --namespace silo-north .*", forbidden("list", "pods", "", "silo-north"))
    kubectl.answer("logs digits-aggregator-1 .*", {"out": "hello\n"})
    assert main(["logs", "digits"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "[aggregator] hello\n"
    closed = "this login may not list pods in namespace silo-north; ask the institution for its log"
    assert shown.err.splitlines() == [
        f"fedsilo: north/{component}: {closed}" for component in ("guard", "trainer")
    ]


def test_one_log_that_may_not_be_read_hides_no_other(
    kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.json("get federatedjobs.*", job(silos=[entry("north")]))
    kubectl.items("get pods .*", *(pod(name, "north") for name in ("guard", "trainer")))
    kubectl.refuse("logs north-guard-1 .*", forbidden("get", "pods/log", "", "silo-north"))
    kubectl.answer("logs north-trainer-1 .*", {"out": "hello\n"})
    assert main(["logs", "digits", "--silo", "north"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "[north/trainer] hello\n"
    assert shown.err == (
        "fedsilo: [north/guard] this login may not get pods/log in namespace silo-north; ask for a role with the verb "
        "get on pods/log\n"
    )


def test_an_interruption_before_all_logs_are_read_ends_those_that_are(
    federation: FakeKubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL", str(endless_kubectl(federation, tmp_path)))
    monkeypatch.setenv("PATH", os.defpath)
    submit = ThreadPoolExecutor.submit

    def interrupt_output(self: ThreadPoolExecutor, *work: Any) -> None:
        submit(self, *work)
        while not (tmp_path / "pids").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupt_output)
    assert main(["logs", "digits", "--follow"]) == 130
    assert_gone(tmp_path / "pids")


def test_an_interruption_leaves_no_kubectl_behind(federation: FakeKubectl, tmp_path: Path) -> None:
    code = "import sys; from fedsilo.cli.main import main; sys.exit(main(['logs', 'digits', '--follow']))"
    environment = {**os.environ, "KUBECTL": str(endless_kubectl(federation, tmp_path)), "PATH": os.defpath}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdout
        assert sum(process.stdout.readline().endswith(b"started\n") for _ in range(3)) == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert_gone(tmp_path / "pids")


def test_following_ends_with_its_reader(federation: FakeKubectl, tmp_path: Path) -> None:
    code = "import sys; from fedsilo.cli.main import main; sys.exit(main(['logs', 'digits', '--follow']))"
    environment = {**os.environ, "KUBECTL": str(endless_kubectl(federation, tmp_path)), "PATH": os.defpath}
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(writer)
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(10) == 0
    assert_gone(tmp_path / "pids")


def endless_kubectl(federation: FakeKubectl, folder: Path) -> Path:
    """A kubectl whose logs never end; it writes its process ids into `pids`."""
    endless = folder / "endless"
    endless.write_text(
        f'#!/bin/sh\nif [ "$1" = logs ]; then echo "$$" >> {folder}/pids; echo started; exec sleep 600; fi\n'
        f'exec {federation.path} "$@"\n'
    )
    endless.chmod(0o755)
    return endless


def assert_gone(pids: Path) -> None:
    for pid in map(int, pids.read_text().split()):
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.02)
        assert not Path(f"/proc/{pid}").exists()
