"""Fetching a job's model: the pod that reads it, the copy, the digest, and that nothing stays behind."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedsilo.cli.cluster import reading
from fedsilo.cli.main import main
from tests.unit.cli.fake_kubectl import FakeKubectl, forbidden
from tests.unit.cli.objects import condition, job

CONTENT = random.Random(1).randbytes(3_000_000) + b"\r\n\x00\xff\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DESCRIPTION = {"sha256": SHA256, "model": {"name": "lenet"}}
POD = r"digits-model-\w{6}"
EXEC = rf"exec {POD} --namespace research --container=reader --"
AGGREGATOR = {"spec": {"template": {"spec": {"containers": [{"image": "registry.example/aggregator:1"}]}}}}
RUNNING = {"status": {"phase": "Running"}}


def complete(**model: Any) -> dict[str, Any]:
    named = {"claim": "digits-6f1c2c0e", "path": "model.safetensors", "sha256": SHA256, **model}
    return job(condition("Complete", "True", "Complete"), model=named)


def part(begin: int, most: int = len(CONTENT), **more: Any) -> dict[str, Any]:
    """What kubectl streams of the model; the file is set by the fixture."""
    return {"file": "model", "begin": begin, "most": most, **more}


class Volume:
    """A cluster whose job is complete."""

    def __init__(self, kubectl: FakeKubectl, root: Path) -> None:
        self.kubectl, self._file = kubectl, root / "in-the-volume"
        self._file.write_bytes(CONTENT)
        kubectl.json("get federatedjobs.*", complete())
        kubectl.json("get jobs.batch digits-aggregator --namespace research .*", AGGREGATOR)
        kubectl.answer("create --filename=-", {})
        kubectl.json(f"get pod {POD} --namespace research .*", RUNNING)
        kubectl.json(f"{EXEC} cat /model/model.json", DESCRIPTION)
        kubectl.answer(f"{EXEC} ls -1 /model", {"out": "model.json\nmodel.safetensors\n"})
        kubectl.answer(rf"{EXEC} stat -L -c %s /model/model.safetensors", {"out": f"{len(CONTENT)}\n"})
        kubectl.answer("delete pod .*", {})

    def streams(self, begin: int, *answers: dict[str, Any]) -> None:
        """What the copy from that byte on says."""
        answers = tuple({**answer, "file": str(self._file)} for answer in answers)
        self.kubectl.answer(rf"{EXEC} tail -c \+{begin + 1} /model/model.safetensors", *answers)

    @property
    def pod(self) -> dict[str, Any]:
        """The pod that was made."""
        (given,) = [call.given for call in self.kubectl.calls if call.words[0] == "create"]
        made: dict[str, Any] = json.loads(given)
        return made

    def require_removed(self) -> None:
        """That pod, and in the end."""
        name = self.pod["metadata"]["name"]
        assert self.kubectl.calls[-1].line == (
            f"delete pod {name} --namespace research --ignore-not-found --wait=false"
        )


@pytest.fixture
def volume(kubectl: FakeKubectl, tmp_path: Path) -> Volume:
    return Volume(kubectl, tmp_path)


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    """An empty directory for the model."""
    path = tmp_path / "here"
    path.mkdir()
    return path


def fetch(here: Path, *arguments: str) -> int:
    return main(["model", "digits", "-n", "research", "-o", str(here / "digits.safetensors"), *arguments])


def names(here: Path) -> list[str]:
    return sorted(path.name for path in here.iterdir())


def test_the_model_and_its_description_arrive_whole(
    volume: Volume, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume.streams(0, part(0))
    assert fetch(model_directory) == 0
    assert (model_directory / "digits.safetensors").read_bytes() == CONTENT
    assert json.loads((model_directory / "digits.json").read_bytes()) == DESCRIPTION
    assert names(model_directory) == ["digits.json", "digits.safetensors"]
    assert capsys.readouterr().out == (
        f"{model_directory}/digits.safetensors: {len(CONTENT):,} bytes, sha256 {SHA256} as the status of job "
        "research/digits says\n"
    )
    volume.require_removed()


def test_no_description_is_there_before_its_model(
    volume: Volume, model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume.streams(0, part(0))

    def interrupt_write(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsilo.cli.model.publish", interrupt_write)
    assert fetch(model_directory) == 130
    assert names(model_directory) == []


def test_curves_arrive_where_the_job_has_drawn_them(volume: Volume, model_directory: Path) -> None:
    found = complete()
    found["spec"]["output"] = {"tensorboard": True}
    volume.kubectl.answer_first("get federatedjobs.*", {"out": json.dumps(found)})
    volume.kubectl.answer(rf"{EXEC} cat /model/curves.tfevents", {"out": "events"})
    volume.streams(0, part(0))
    assert fetch(model_directory) == 0
    assert (model_directory / "digits.tfevents").read_text() == "events"
    assert names(model_directory) == ["digits.json", "digits.safetensors", "digits.tfevents"]


def test_the_card_arrives_where_there_is_one(volume: Volume, model_directory: Path) -> None:
    volume.kubectl.answer_first(
        f"{EXEC} ls -1 /model", {"out": "MODEL_CARD.md\nmodel.json\nmodel.safetensors\n"}
    )
    volume.kubectl.answer(rf"{EXEC} cat /model/MODEL_CARD.md", {"out": "# digits\n"})
    volume.streams(0, part(0))
    assert fetch(model_directory) == 0
    assert (model_directory / "digits.md").read_text() == "# digits\n"
    assert names(model_directory) == ["digits.json", "digits.md", "digits.safetensors"]


def test_the_pod_can_do_nothing_but_read(volume: Volume, model_directory: Path) -> None:
    volume.streams(0, part(0))
    assert fetch(model_directory) == 0
    spec, metadata = volume.pod["spec"], volume.pod["metadata"]
    (container,) = spec["containers"]
    assert container["image"] == "registry.example/aggregator:1"
    assert spec["automountServiceAccountToken"] is False
    assert spec["activeDeadlineSeconds"] == reading.LIFETIME_SECONDS
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True]
    assert [item["persistentVolumeClaim"] for item in spec["volumes"]] == [
        {"claimName": "digits-6f1c2c0e", "readOnly": True}
    ]
    assert metadata["labels"]["app.kubernetes.io/component"] == "model-reader"
    assert [owner["kind"] for owner in metadata["ownerReferences"]] == ["FederatedJob"]


def test_the_pod_has_the_user_and_the_pull_secrets_of_the_one_that_wrote() -> None:
    job = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "j", "namespace": "n", "uid": "u"}}
    context = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002}
    writer = {"securityContext": context, "imagePullSecrets": [{"name": "registry"}], "nodeName": "one"}
    spec = reading.reader_pod(job, "claim", "image", writer)["spec"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (1000, 1001)
    assert spec["imagePullSecrets"] == writer["imagePullSecrets"] and "nodeName" not in spec
    assigned = reading.reader_pod(job, "claim", "image", {"securityContext": {"runAsNonRoot": True}})["spec"]
    assert not {"runAsUser", "runAsGroup"} & assigned["securityContext"].keys()


def test_the_pod_has_what_the_platform_asks_of_the_aggregators() -> None:
    """The reader runs where the aggregator's volume is, and is counted like the aggregator."""
    template = {
        "metadata": {"labels": {"team": "blue"}, "annotations": {"example.com/cost": "1"}},
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
        "affinity": {},
    }
    job = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "j", "namespace": "n", "uid": "u"}}
    pod = reading.reader_pod(job | {"spec": {"aggregator": {"podTemplate": template}}}, "claim", "image")
    assert pod["metadata"]["labels"].items() >= {"team": "blue", "fedsilo.io/job-uid": "u"}.items()
    assert pod["metadata"]["annotations"] == {"example.com/cost": "1"}
    assert pod["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert pod["spec"]["tolerations"] == template["tolerations"]
    assert "affinity" not in pod["spec"]


def test_another_image_may_read_it(volume: Volume, model_directory: Path) -> None:
    volume.streams(0, part(0))
    assert fetch(model_directory, "--image", "registry.example/busybox:1") == 0
    assert volume.pod["spec"]["containers"][0]["image"] == "registry.example/busybox:1"
    assert "runAsUser" not in volume.pod["spec"]["securityContext"], (
        "the files are those of the pod that wrote"
    )


def test_another_image_may_read_what_an_aggregator_wrote_that_is_gone(
    volume: Volume, model_directory: Path
) -> None:
    volume.streams(0, part(0))
    gone = {"err": 'Error from server (NotFound): jobs.batch "x" not found\n', "code": 1}
    volume.kubectl.answer_first("get jobs.batch .*", gone)
    assert fetch(model_directory, "--image", "registry.example/busybox:1") == 0
    assert volume.pod["spec"]["securityContext"]["runAsUser"] == 65_532


def test_a_broken_connection_is_taken_up_where_it_broke(volume: Volume, model_directory: Path) -> None:
    lost = {"err": "error: unexpected EOF\n", "code": 1}
    volume.streams(0, part(0, 1_000_000, **lost))
    volume.streams(1_000_000, part(0, 0, **lost), part(1_000_000, 7), part(0))
    volume.streams(1_000_007, part(1_000_007))
    assert fetch(model_directory) == 0
    assert (model_directory / "digits.safetensors").read_bytes() == CONTENT


def test_a_connection_that_breaks_every_time_is_given_up(
    volume: Volume, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume.streams(0, part(0, 5))
    volume.streams(5, part(0, 0, err="error: lost connection to pod\n", code=1))
    assert fetch(model_directory) == 1
    assert capsys.readouterr().err == (
        f"fedsilo: the copy broke off after 5 of {len(CONTENT):,} bytes: kubectl exec: lost connection to pod; "
        "try again\n"
    )
    assert names(model_directory) == []
    volume.require_removed()


def test_another_digest_keeps_nothing(
    volume: Volume, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = bytearray(CONTENT)
    changed[77] ^= 1
    (model_directory.parent / "in-the-volume").write_bytes(changed)
    volume.streams(0, part(0))
    assert fetch(model_directory) == 8
    said = capsys.readouterr().err
    assert said.startswith("fedsilo: digest-mismatch: sha256 of the model that came is ")
    assert hashlib.sha256(changed).hexdigest() in said
    assert SHA256 in said
    assert names(model_directory) == []
    volume.require_removed()


@pytest.mark.parametrize("text", ['{"sha256": "ff"}', "{}", "[]", "not JSON"])
def test_a_description_of_another_model_keeps_nothing(
    kubectl: FakeKubectl, model_directory: Path, text: str
) -> None:
    kubectl.answer(f"{EXEC} cat .*", {"out": text})
    Volume(kubectl, model_directory.parent).streams(0, part(0))
    assert fetch(model_directory) == 8
    assert names(model_directory) == []


@pytest.mark.parametrize(
    ("found", "code", "line"),
    [
        (
            job(),
            2,
            "job research/digits is not complete and has no model yet; see kubectl fedsilo why digits -n research",
        ),
        (
            job(condition("Failed", "True", "QuorumLost", "1 of 4 silos is left")),
            4,
            "job research/digits has no model: it failed, QuorumLost: 1 of 4 silos is left",
        ),
        (
            complete(claim=None),
            2,
            "job research/digits: status.model.claim is missing; see kubectl fedsilo why digits -n research",
        ),
    ],
)
def test_without_a_model_no_pod_is_made(
    kubectl: FakeKubectl,
    model_directory: Path,
    capsys: pytest.CaptureFixture[str],
    found: dict[str, Any],
    code: int,
    line: str,
) -> None:
    kubectl.json("get federatedjobs.*", found)
    assert fetch(model_directory) == code
    assert capsys.readouterr().err == f"fedsilo: {line}\n"
    assert [call.words[0] for call in kubectl.calls] == ["get"]


@pytest.mark.parametrize("name", ["digits.safetensors", "digits.json"])
def test_no_file_is_overwritten(
    kubectl: FakeKubectl, model_directory: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (model_directory / name).write_text("mine")
    assert fetch(model_directory) == 2
    remedy = "is there already; remove it or name another file with -o"
    assert capsys.readouterr().err == f"fedsilo: {model_directory / name}: {remedy}\n"
    assert (model_directory / name).read_text() == "mine"
    assert kubectl.calls == []


def test_a_place_that_cannot_hold_both_files_is_refused(
    kubectl: FakeKubectl, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "digits", "-o", str(model_directory / "model.json")]) == 2
    assert main(["model", "digits", "-o", str(model_directory / "no" / "model.safetensors")]) == 2
    assert "end the model's in .safetensors" in capsys.readouterr().err
    assert kubectl.calls == []


def test_an_aggregator_that_is_gone_asks_for_an_image(
    kubectl: FakeKubectl, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json("get federatedjobs.*", complete())
    kubectl.refuse("get jobs.batch .*", 'Error from server (NotFound): jobs.batch "x" not found')
    assert fetch(model_directory) == 2
    assert capsys.readouterr().err.endswith("; name one with --image\n")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "gone"}}}
                ],
            },
            "ImagePullBackOff: gone",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted: low on disk"),
    ],
)
def test_a_pod_that_cannot_run_is_removed_and_says_why(
    kubectl: FakeKubectl,
    model_directory: Path,
    capsys: pytest.CaptureFixture[str],
    status: dict[str, Any],
    reason: str,
) -> None:
    kubectl.json(f"get pod {POD} .*", {"status": status})
    volume = Volume(kubectl, model_directory.parent)
    assert fetch(model_directory) == 1
    name = volume.pod["metadata"]["name"]
    assert capsys.readouterr().err == (
        f"fedsilo: pod {name} in namespace research, which reads the model, does not run: {reason}; mend that, or name "
        "another image with --image\n"
    )
    volume.require_removed()


def test_a_pod_that_nothing_starts_is_given_up_in_the_end(
    kubectl: FakeKubectl,
    model_directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "START_SECONDS", 0.0)
    kubectl.json(f"get pod {POD} .*", {"status": {"phase": "Pending"}})
    volume = Volume(kubectl, model_directory.parent)
    assert fetch(model_directory) == 1
    assert "does not run: its container has not begun" in capsys.readouterr().err
    volume.require_removed()


def test_without_the_right_to_make_a_pod_the_right_is_named(
    kubectl: FakeKubectl, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse("create .*", forbidden("create", "pods", "", "research"))
    Volume(kubectl, model_directory.parent)
    assert fetch(model_directory) == 5
    assert "may not create pods in namespace research" in capsys.readouterr().err


def test_a_pod_that_stays_is_reported_and_hides_no_error(
    kubectl: FakeKubectl, model_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse("delete .*", "Unable to connect to the server: EOF")
    volume = Volume(kubectl, model_directory.parent)
    volume.streams(0, part(0))
    assert fetch(model_directory) == 0
    name = volume.pod["metadata"]["name"]
    assert f"remove it with kubectl delete pod {name} --namespace research" in capsys.readouterr().err
    assert (model_directory / "digits.safetensors").read_bytes() == CONTENT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_removes_the_pod_and_the_part(
    volume: Volume, model_directory: Path, number: signal.Signals
) -> None:
    slow = model_directory.parent / "slow"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *tail*) echo beginning; exec sleep 600;; esac\nexec {volume.kubectl.path} "$@"\n'
    )
    slow.chmod(0o755)
    arguments = ["model", "digits", "-o", str(model_directory / "digits.safetensors")]
    code = f"import sys; from fedsilo.cli.main import main; sys.exit(main({arguments!r}))"
    environment = {**os.environ, "KUBECTL": str(slow), "PATH": os.defpath}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=environment) as process:
        for _ in range(500):
            if (model_directory / "digits.safetensors.part").exists():
                break
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert said == b"fedsilo: interrupted\n"
    assert names(model_directory) == []
    volume.require_removed()
