"""How the cluster is asked, and what a person reads when it does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.main import main
from tests.unit.cli.fake_kubectl import NOT_FOUND, FakeKubectl, forbidden
from tests.unit.cli.objects import job

MISSING_JOB = NOT_FOUND.format(resource="federatedjobs.fedsilo.io", name="digit")


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_without_kubectl_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)
    assert main(["status"]) == 2
    assert error_line(capsys) == (
        "fedsilo: kubectl: there is no such program on PATH; install kubectl, or name it in KUBECTL"
    )


def test_kubectl_may_be_named_with_words_of_its_own(
    kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL", f"{kubectl.path} --verbosity 0")
    kubectl.items(".*")
    assert main(["status", "--context", "lab", "--kubeconfig", "/my/config", "-n", "research"]) == 0
    assert kubectl.calls[0].line == (
        "--verbosity 0 --context lab --kubeconfig /my/config get federatedjobs.fedsilo.io --namespace research "
        "--output=json"
    )


def test_every_call_has_a_time_out(kubectl: FakeKubectl) -> None:
    kubectl.items(".*")
    assert main(["status"]) == 0
    assert "--request-timeout=15s" in (kubectl.root / "calls").read_text()


@pytest.mark.parametrize(
    ("namespaced", "elsewhere", "remedy"),
    [
        (["digits", "scans"], [], "in namespace research; did you mean digits?"),
        ([], ["digit"], "in namespace research; it is in vision: add -n vision"),
        ([], [], "in namespace research, and no other either; name its namespace with -n"),
        (["zebra", "lion"], [], "in namespace research; use one of zebra, lion"),
    ],
)
def test_a_job_that_is_not_there_is_answered_with_the_nearest(
    kubectl: FakeKubectl,
    capsys: pytest.CaptureFixture[str],
    namespaced: list[str],
    elsewhere: list[str],
    remedy: str,
) -> None:
    jobs = [job(metadata={"name": name}) for name in namespaced]
    jobs += [job(metadata={"name": name, "namespace": "vision"}) for name in elsewhere]
    kubectl.refuse("get federatedjobs.fedsilo.io digit .*", MISSING_JOB)
    kubectl.json("config view --minify .*", {"contexts": [{"context": {"namespace": "research"}}]})
    kubectl.items("get federatedjobs.fedsilo.io --all-namespaces .*", *jobs)
    assert main(["why", "digit"]) == 2
    assert error_line(capsys) == f"fedsilo: FederatedJob digit: there is no such job {remedy}"


def test_a_context_without_a_namespace_means_default(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse("get federatedjobs.fedsilo.io digit .*", MISSING_JOB)
    kubectl.json("config view .*", {"contexts": None})
    kubectl.refuse("get .* --all-namespaces .*", forbidden("list", "federatedjobs"))
    kubectl.items("get federatedjobs.fedsilo.io --output=json", job(metadata={"namespace": "default"}))
    assert main(["why", "digit"]) == 2
    assert error_line(capsys).endswith("in namespace default; did you mean digits?")


@pytest.mark.parametrize(
    ("stderr", "line", "code"),
    [
        (
            forbidden("get", "federatedjobs", namespace="research"),
            "this login may not get federatedjobs.fedsilo.io in namespace research; ask for a role with the verb get "
            "on federatedjobs.fedsilo.io",
            5,
        ),
        (
            forbidden("list", "pods", ""),
            "this login may not list pods in all namespaces; ask for a role with the verb list on pods",
            5,
        ),
        (
            'error: the server doesn\'t have a resource type "federatedjobs"',
            "federatedjobs: this cluster does not know it; choose another with --context, or install fedsilo there",
            2,
        ),
        ('error: context "lab" does not exist', 'context "lab" does not exist', 2),
        (
            "Error in configuration: context was not found for specified context: lab",
            "Error in configuration: context was not found for specified context: lab",
            2,
        ),
        (
            "E1121 14:02:11.000000  1 memcache.go:265] couldn't get current server API group list\n"
            "The connection to the server lab:6443 was refused - did you specify the right host or port?",
            "kubectl get: The connection to the server lab:6443 was refused - did you specify the right host or port?",
            1,
        ),
        ("", "kubectl get: it said nothing", 1),
    ],
)
def test_what_kubectl_refuses_is_one_line_and_an_exit_code(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], stderr: str, line: str, code: int
) -> None:
    kubectl.refuse("get .*", stderr)
    assert main(["status", "digits"]) == code
    assert error_line(capsys) == f"fedsilo: {line}"


def test_a_login_that_asks_the_person_is_heard(tmp_path: Path) -> None:
    """Its question is shown while kubectl still waits for the answer."""
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\nprintf 'enter code ABCD\\n\\033[2Jand wait\\n' >&2\nread answer\necho '{\"items\": []}'\n"
    )
    program.chmod(0o755)
    environment = {**os.environ, "KUBECTL": str(program)}
    code = "import sys; from fedsilo.cli.main import main; sys.exit(main(['status']))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stderr.readline() == b"enter code ABCD\n"
        assert process.stderr.readline() == b"\\x1b[2Jand wait\n", "nothing that steers a terminal"
        process.stdin.write(b"yes\n")
        process.stdin.flush()
        assert process.stdout.read() == b"there are no jobs in this namespace\n"
    assert process.returncode == 0


def test_the_commands_for_a_cluster_need_the_base_installation_only(kubectl: FakeKubectl) -> None:
    kubectl.json("get federatedjobs.fedsilo.io digits .*", job())
    kubectl.items("get .*")
    code = (
        "import sys; from fedsilo.cli.main import main\n"
        "assert main(['why', 'digits']) == main(['status']) == main(['approve']) == 0\n"
        "print({'torch', 'aiohttp', 'kubernetes', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
