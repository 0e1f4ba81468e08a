"""What an agent's children look like, to the letter, and what no pod may ask for."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsilo.api.agent import SiloAgent
from fedsilo.api.loading import load_document
from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo
from fedsilo_agent import network as isolation_program
from fedsilo_agent.guard import __main__ as guard_program
from fedsilo_agent.guard.current_policy import PresentPolicy
from fedsilo_agent.trainer import __main__ as trainer_program
from fedsilo_operator.plan import ApplyAction, CreateAction
from fedsilo_operator.settings import PLATFORMS, OutsideSettings
from fedsilo_operator.workloads import agent as children
from fedsilo_operator.workloads.agent import GUARD, PERMANENT_EXIT_CODES, TRAINER, ParsedAgent
from tests.unit.operator.silo.harness import SETTINGS, World, agent, job_spec, silo

GOLDEN = Path(__file__).with_name("golden") / "children.yaml"

TEMPLATE: dict[str, Any] = {
    "resources": {"requests": {"cpu": 4, "memory": "16Gi"}, "limits": {"nvidia.com/gpu": 1}},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "runtimeClassName": "nvidia",
    "storage": {"size": "50Gi", "storageClassName": "fast"},
    "guardImage": "registry.example/hospital/guard:7",
}


class _ReadableDumper(yaml.SafeDumper):
    """Text of several lines as such."""


_ReadableDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, "|" if "\n" in text else None
    ),
)


def applied_objects(world: World) -> list[Object]:
    return [
        action.object for action in world.plan().actions if isinstance(action, ApplyAction | CreateAction)
    ]


def full_world() -> World:
    return World(agent(job_spec(agents={"image": "registry.example/trainer:2"})), silo(template=TEMPLATE))


def pod(component: str, world: World | None = None) -> dict[str, Any]:
    jobs = {
        obj["metadata"]["name"].rpartition("-")[2]: obj
        for obj in applied_objects(world or full_world())
        if obj["kind"] == "Job"
    }
    spec: dict[str, Any] = jobs[component]["spec"]["template"]["spec"]
    return spec


def container(component: str, world: World | None = None) -> dict[str, Any]:
    (only,) = pod(component, world)["containers"]
    assert isinstance(only, dict)
    return only


def isolation(world: World | None = None) -> dict[str, Any]:
    (only,) = pod(TRAINER, world)["initContainers"]
    assert isinstance(only, dict)
    return only


def mounts(component: str) -> dict[str, tuple[str | None, bool]]:
    return {
        mount["mountPath"]: (mount.get("subPath"), mount.get("readOnly", False))
        for mount in container(component)["volumeMounts"]
    }


def test_children_are_those_of_the_golden_file() -> None:
    assert (
        yaml.dump_all(applied_objects(full_world()), Dumper=_ReadableDumper, sort_keys=False)
        == GOLDEN.read_text()
    )


def test_a_trainer_writes_as_much_data_as_its_limit_of_storage_has_room_for() -> None:
    limits = {"cpu": "2", "ephemeral-storage": "100Gi"}
    template = TEMPLATE | {"resources": {"limits": limits}}
    world = World(agent(job_spec()), silo(template=template))
    found, beside = pod(TRAINER, world), pod(GUARD, world)
    assert found["containers"][0]["resources"]["limits"] == limits
    (variable,) = found["containers"][0]["env"]
    assert variable == {"name": "FEDSILO_TEMPORARY_BYTES", "value": str(90 << 30)}
    assert found["volumes"][-1] == {"name": "tmp", "emptyDir": {"sizeLimit": "100Gi"}}
    assert beside["volumes"][-1] == {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}


@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}, {"amd.com/gpu": "4"}])
def test_a_trainer_on_several_gpus_has_shared_memory_in_which_they_exchange(limits: dict[str, Any]) -> None:
    template = TEMPLATE | {"resources": {"limits": limits}}
    world = World(agent(job_spec()), silo(template=template))
    found, box = pod(TRAINER, world), container(TRAINER, world)
    volumes = [volume for volume in found["volumes"] if volume["name"] == "shared-memory"]
    mounted = [mount for mount in box["volumeMounts"] if mount["name"] == "shared-memory"]
    if sum(map(int, limits.values())) > 1:
        assert volumes == [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ]
        assert mounted == [{"name": "shared-memory", "mountPath": "/dev/shm", "readOnly": False}]
    else:
        assert volumes == mounted == []
    for other in (isolation(world), container(GUARD, world)):
        assert "/dev/shm" not in [mount["mountPath"] for mount in other["volumeMounts"]]


def test_guard_and_trainer_read_what_the_config_map_holds(tmp_path: Path) -> None:
    world = full_world()
    config, present = (obj for obj in applied_objects(world) if obj["kind"] == "ConfigMap")
    (tmp_path / "present.json").write_text(present["data"]["silo.json"])
    for name, content in config["data"].items():
        (tmp_path / name).write_text(content)
    read = load_document(tmp_path / "agent.json", SiloAgent)
    assert read.spec == SiloAgent.model_validate(world.agent).spec
    trust = read.spec.trust
    assert isolation_program.aggregator(tmp_path / "agent.json") == (trust.url, trust.address)
    assert (
        load_document(tmp_path / "silo.json", Silo).spec == Silo.model_validate(silo(template=TEMPLATE)).spec
    )
    reference = load_document(tmp_path / "silo.json", Silo)
    assert str(PresentPolicy(tmp_path / "present.json", reference).read()) == str(reference)
    assert "immutable" in config
    assert "immutable" not in present


def test_the_config_map_is_the_same_whatever_was_written_into_the_objects_since() -> None:
    world = full_world()
    before = applied_objects(world)
    world.agent["metadata"] |= {"resourceVersion": "77", "managedFields": []}
    world.agent["status"] = {"phase": "Starting"}
    assert applied_objects(world) == before


def test_a_guard_serves_metrics_only_where_they_are_wanted() -> None:
    owner = agent()
    parsed = ParsedAgent(SiloAgent.model_validate(owner), Silo.model_validate(silo()), owner)
    for wanted in ({"a": "b"}, None):
        made = children.guard_job(parsed, replace(SETTINGS, metrics_from=wanted))
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert ("ports" in container) == ("--metrics-port" in container["args"]) == (wanted is not None)
        assert children.guard_policy(parsed, SETTINGS)["spec"]["ingress"] == [], (
            "whom it answers, the institution says"
        )


@pytest.mark.parametrize("name", [TRAINER, GUARD, "isolation"])
def test_the_arguments_are_ones_that_the_program_takes(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are understood; then the file that the first names is not there."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    program = {TRAINER: trainer_program, GUARD: guard_program}.get(name, isolation_program)
    given = (isolation() if name == "isolation" else container(name))["args"]
    arguments = [word.replace("/var/lib/fedsilo", str(tmp_path)) for word in given]
    assert program.main(arguments) == 2
    assert "/etc/fedsilo/agent.json: does not exist" in caplog.text


def test_guard_and_trainer_see_their_own_directories_only() -> None:
    root = "/var/lib/fedsilo"
    assert mounts(TRAINER) == {
        "/etc/fedsilo": (None, True),
        f"{root}/inbox": ("inbox", True),
        f"{root}/drop": ("drop", False),
        f"{root}/state": ("state", False),
        "/data/scans": (None, True),
        "/tmp": (None, False),
    }
    assert mounts(GUARD) == {
        "/etc/fedsilo": (None, True),
        "/etc/fedsilo-policy": (None, True),
        f"{root}/inbox": ("inbox", False),
        f"{root}/drop": ("drop", False),
        f"{root}/guard": ("guard", False),
        f"{root}/audit": ("audit", False),
        "/run/secrets/fedsilo": (None, True),
        "/tmp": (None, False),
    }


def test_the_network_check_is_the_silos_own_and_sees_neither_data_nor_volume() -> None:
    look = isolation()
    assert look["image"] == TEMPLATE["guardImage"]
    assert isolation(World(agent(), silo()))["image"] == SETTINGS.guard_image
    assert look["command"] == ["fedsilo-isolation"]
    assert [mount["mountPath"] for mount in look["volumeMounts"]] == ["/etc/fedsilo", "/tmp"]
    assert look["securityContext"] == container(TRAINER)["securityContext"]


def test_the_network_check_requests_what_the_trainer_has_anyway_and_no_device() -> None:
    assert isolation()["resources"] == {"requests": {"cpu": "4", "memory": "16Gi"}}
    assert "resources" not in isolation(World(agent(), silo()))


def test_only_the_dataset_that_the_job_names_is_mounted() -> None:
    offered = [
        {
            "name": "scans",
            "loader": "npz",
            "config": {"path": "a"},
            "volume": {"persistentVolumeClaim": "scans"},
        },
        {"name": "letters", "loader": "npz", "config": {"path": "b"}, "volume": {"hostPath": "/srv/letters"}},
    ]
    world = World(
        agent(job_spec(data={"dataset": "letters", "classes": 2, "inputShape": [4]})), silo(datasets=offered)
    )
    volumes = {volume["name"]: volume for volume in pod(TRAINER, world)["volumes"]}
    assert volumes["data-0"] == {"name": "data-0", "hostPath": {"path": "/srv/letters"}}
    assert [
        mount["mountPath"] for mount in container(TRAINER, world)["volumeMounts"] if mount["name"] == "data-0"
    ] == ["/data/letters"]


def test_images_are_the_operators_where_nobody_names_another() -> None:
    world = World(agent(), silo())
    assert container(TRAINER, world)["image"] == SETTINGS.trainer_image
    assert container(GUARD, world)["image"] == SETTINGS.guard_image


def test_a_job_cannot_choose_the_guards_image() -> None:
    assert container(GUARD)["image"] == TEMPLATE["guardImage"]
    assert container(TRAINER)["image"] == "registry.example/trainer:2"


def test_the_guard_needs_no_names_inside_the_cluster() -> None:
    assert pod(GUARD)["hostAliases"] == [
        {"ip": "10.96.1.2", "hostnames": ["digits-aggregator.federation.svc"]}
    ]
    assert "hostAliases" not in pod(TRAINER)


@pytest.mark.parametrize(
    ("url", "port"), [("https://fl.example.org", 443), ("https://fl.example.org:9443/job", 9443)]
)
def test_the_guard_of_an_outside_aggregator_may_reach_its_port_and_names(url: str, port: int) -> None:
    world = World(agent(url=url, address=None), silo())
    policies = {
        obj["metadata"]["name"].rpartition("-")[2]: obj
        for obj in applied_objects(world)
        if obj["kind"] == "NetworkPolicy"
    }
    assert policies[GUARD]["spec"]["egress"] == [
        {"ports": [{"protocol": "TCP", "port": port}]},
        {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
    ]
    assert policies[TRAINER]["spec"]["egress"] == []
    assert "hostAliases" not in pod(GUARD, world)


def test_policies_select_the_pods_of_this_agent() -> None:
    for obj in applied_objects(full_world()):
        if obj["kind"] != "NetworkPolicy":
            continue
        component = obj["metadata"]["name"].rpartition("-")[2]
        labels = next(
            job["spec"]["template"]["metadata"]["labels"]
            for job in applied_objects(full_world())
            if job["kind"] == "Job" and job["metadata"]["name"] == obj["metadata"]["name"]
        )
        selected = obj["spec"]["podSelector"]["matchLabels"]
        assert selected.items() <= labels.items()
        assert selected["app.kubernetes.io/component"] == component
        assert obj["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert obj["spec"]["ingress"] == []


@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_jobs_end_at_once_with_codes_that_no_retry_mends(component: str) -> None:
    (job,) = (
        obj
        for obj in applied_objects(full_world())
        if obj["metadata"]["name"].endswith(f"-{component}") and obj["kind"] == "Job"
    )
    assert job["spec"]["backoffLimit"] == 2
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == list(PERMANENT_EXIT_CODES)
    assert "suspend" not in job["spec"]


# The checks of the restricted level, written down from its definition (Kubernetes, Pod Security Standards).
RESTRICTED_SETTINGS: dict[str, Callable[[Any, Any], bool]] = {
    "host namespaces": lambda spec, _: (
        not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    ),
    "privileged": lambda _, box: not box["securityContext"].get("privileged", False),
    "capabilities": lambda _, box: box["securityContext"]["capabilities"] == {"drop": ["ALL"]},
    "volume types": lambda spec, _: all(
        set(volume) - {"name"} <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
        for volume in spec["volumes"]
    ),
    "host ports": lambda _, box: not any("hostPort" in port for port in box.get("ports", ())),
    "escalation": lambda _, box: box["securityContext"]["allowPrivilegeEscalation"] is False,
    "non-root": lambda spec, _: spec["securityContext"]["runAsNonRoot"] is True,
    "user": lambda spec, _: spec["securityContext"]["runAsUser"] != 0,
    "seccomp": lambda spec, _: spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"},
    "proc mount": lambda _, box: "procMount" not in box["securityContext"],
    "sysctls": lambda spec, _: "sysctls" not in spec["securityContext"],
    "SELinux, AppArmor": lambda spec, _: (
        not {"seLinuxOptions", "appArmorProfile"} & set(spec["securityContext"])
    ),
    # Beyond that level.
    "read-only root": lambda _, box: box["securityContext"]["readOnlyRootFilesystem"] is True,
    "no account's token": lambda spec, _: spec["automountServiceAccountToken"] is False,
    "no service links": lambda spec, _: spec["enableServiceLinks"] is False,
}


@pytest.mark.parametrize("check", RESTRICTED_SETTINGS)
@pytest.mark.parametrize("component", [TRAINER, GUARD])
def test_pods_are_restricted(component: str, check: str) -> None:
    assert RESTRICTED_SETTINGS[check](pod(component), container(component))


def test_the_trainer_has_no_key_and_the_guard_no_data() -> None:
    assert "secret" not in json.dumps(pod(TRAINER))
    assert "/data" not in json.dumps(pod(GUARD))


def test_names_leave_room_for_what_a_job_adds_to_its_pods() -> None:
    long = agent()
    long["spec"]["job"]["name"] = "j" * 40
    parsed = ParsedAgent(SiloAgent.model_validate(long), Silo.model_validate(silo()), long)
    for job in (children.trainer_job(parsed, SETTINGS), children.guard_job(parsed, SETTINGS)):
        assert len(job["metadata"]["name"]) + len("-abcde") <= 63


def test_a_guard_gets_out_where_its_institution_says_and_by_its_proxy() -> None:
    owner = agent(url="https://hub.example:9443", address=None)
    parsed = ParsedAgent(SiloAgent.model_validate(owner), Silo.model_validate(silo()), owner)

    def guard_egress(outside: OutsideSettings) -> tuple[Any, Any]:
        settings = replace(SETTINGS, outside=outside)
        (container,) = children.guard_job(parsed, settings)["spec"]["template"]["spec"]["containers"]
        return children.guard_policy(parsed, settings)["spec"]["egress"][0], container

    rule, container = guard_egress(OutsideSettings())
    assert rule == {"ports": [{"protocol": "TCP", "port": 9443}]}
    assert not {"env", "envFrom"} & container.keys()
    rule, container = guard_egress(
        OutsideSettings(("192.0.2.7/32",), "fedsilo-proxy", 3128, "fedsilo-authorities")
    )
    assert rule == {
        "ports": [{"protocol": "TCP", "port": 3128}],
        "to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}],
    }
    assert container["envFrom"] == [{"secretRef": {"name": "fedsilo-proxy"}}]
    (variable,) = container["env"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "authorities")
    assert variable == {"name": "SSL_CERT_FILE", "value": f"{mount['mountPath']}/ca.crt"}
    trainer = children.trainer_job(parsed, replace(SETTINGS, outside=OutsideSettings(proxy_secret="login")))
    assert "login" not in str(trainer), "the trainer has no network, and no password"


def test_a_guard_goes_through_the_cluster_s_proxy_out_of_it_only() -> None:
    settings = replace(
        SETTINGS,
        outside=OutsideSettings(proxy="http://proxy.example:3128", proxy_port=3128, no_proxy="10.0.0.0/8"),
    )
    found = []
    for owner in (agent(), agent(url="https://hub.example:9443", address=None)):
        parsed = ParsedAgent(SiloAgent.model_validate(owner), Silo.model_validate(silo()), owner)
        (container,) = children.guard_job(parsed, settings)["spec"]["template"]["spec"]["containers"]
        found.append({variable["name"]: variable["value"] for variable in container["env"]})
    inside, out = found
    assert inside == {"NO_PROXY": "digits-aggregator.federation.svc"}
    assert out == {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "10.0.0.0/8"}
    assert children.guard_policy(parsed, settings)["spec"]["egress"][0] == {
        "ports": [{"protocol": "TCP", "port": 3128}]
    }


def test_both_pods_have_the_pull_secrets_of_the_silo_and_the_platform_s_user() -> None:
    owner, content = agent(), silo()
    content["spec"]["agent"] = content["spec"].get("agent", {}) | {"imagePullSecrets": ["registry"]}
    parsed = ParsedAgent(SiloAgent.model_validate(owner), Silo.model_validate(content), owner)
    settings = replace(SETTINGS, user=PLATFORMS["openshift"])
    for job in (children.trainer_job(parsed, settings), children.guard_job(parsed, settings)):
        pod = job["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys()
