"""What is kept of an object is all that somebody reads, and little besides."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.lean import lean_copy
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.workloads.suspension import is_suspended
from tests.contract_objects import config_map, job

CONTAINER = {
    "name": "trainer",
    "image": "fedsilo-trainer:none",
    "args": ["--data-root", "/data"],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "n",
        "name": "p",
        "uid": "1",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"app.kubernetes.io/component": "trainer"},
        "managedFields": [{"manager": "kubelet"}],
    },
    "spec": {"nodeName": "node", "containers": [CONTAINER], "volumes": [{"name": "data", "emptyDir": {}}]},
    "status": {
        "phase": "Pending",
        "containerStatuses": [{"ready": False, "state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
    },
}


def test_a_pod_keeps_what_explains_its_failure() -> None:
    before = copy.deepcopy(POD)
    kept = lean_copy(POD)
    assert before == POD, "a copy"
    assert kept["spec"] == {
        "nodeName": "node",
        "containers": [{name: CONTAINER[name] for name in ("name", "image", "resources")}],
    }
    assert kept["status"] == POD["status"]
    assert "managedFields" not in kept["metadata"]
    owner = job("n") | {"metadata": POD["metadata"]}
    found = diagnose(owner, [POD], (), datetime(2026, 3, 1, 13, 0, tzinfo=UTC))
    assert diagnose(lean_copy(owner), [kept], (), datetime(2026, 3, 1, 13, 0, tzinfo=UTC)) == found
    assert found.diagnosis is not None
    assert running([kept]) == running([POD])


def test_a_job_keeps_of_its_template_what_image_runs() -> None:
    made = job("n", suspend=True, backoffLimit=3)
    made["spec"]["template"] = {
        "metadata": {"labels": {"x": "y"}},
        "spec": POD["spec"] | {"affinity": {"x": {}}},
    }
    kept = lean_copy(made)
    container = {name: CONTAINER[name] for name in ("name", "image")}
    assert kept["spec"] == {
        "suspend": True,
        "backoffLimit": 3,
        "template": {"spec": {"nodeName": "node", "containers": [container]}},
    }
    assert is_suspended(kept)


def test_what_other_controllers_note_for_themselves_is_not_kept() -> None:
    noted = copy.deepcopy(POD)
    noted["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    noted["status"] |= {"podIP": "10.0.0.7", "startTime": "2026-03-01T12:00:00Z"}
    noted["status"]["containerStatuses"][0]["imageID"] = "sha256:0"
    assert lean_copy(noted) == lean_copy(POD)
    made = job("n") | {"status": {"failed": 1, "conditions": []}}
    counting = {"active": 1, "uncountedTerminatedPods": {"succeeded": ["1"]}}
    assert lean_copy(made | {"status": made["status"] | counting}) == lean_copy(made)
    assert lean_copy(made)["status"] == made["status"]


def test_other_kinds_keep_everything() -> None:
    found = config_map("n", data={"template": "x", "args": "y"})
    assert lean_copy(found) == found


def test_strings_are_kept_once() -> None:
    one, two = (lean_copy(json.loads(json.dumps(POD))) for _ in range(2))
    assert one["spec"]["containers"][0]["image"] is two["spec"]["containers"][0]["image"]
