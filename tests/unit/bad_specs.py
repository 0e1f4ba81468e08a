"""Bad jobs and bad Silos: a part of a good specification, what is wrong with it, and who finds it.

Each names the field at fault as the person reads it, and words of the remedy. `tests/unit/operator/test_bad_specs.py`
asks validation, operator, silo and network; `tests/cluster/schema/test_bad_specs.py` asks an API server.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

Section = dict[str, Any]

GPU = "nvidia.com/gpu"
DIGITS: Section = {"name": "digits", "loader": "sklearn:digits", "config": {"split": "train"}}


class Finder(Enum):
    """Who is first to find what is wrong, and tells the person who wrote it."""

    API_SERVER = "refused at apply"
    OPERATOR = "final fault of the job, or the Silo cannot be read, before anything is made"
    SILO = "the silo's objection in the job's condition Admitted, before any pod"
    NETWORK = "the aggregator, which builds the network from the job alone; final fault of the job"


@dataclass(frozen=True)
class BadSpec:
    """A part of a specification that cannot be run.

    :param part: laid over the good specification.
    :param field: at fault, as it is named to the person.
    :param remedy: words of what is said of it.
    :param reason: of the job's condition, where the operator finds it.
    """

    part: Section
    field: str
    remedy: str
    finder: Finder = Finder.API_SERVER
    reason: str = "ManifestInvalid"


JOB_SPEC: Section = {
    "method": {"name": "fedavg"},
    "model": {"name": "mlp", "config": {"hidden": [16]}},
    "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8]},
    "training": {"rounds": 20},
    "silos": {"refs": [{"namespace": "silo-north", "name": "north"}]},
}

SILO_SPEC: Section = {"datasets": [DIGITS]}


def laid_over(spec: Section, part: Section) -> Section:
    """A specification with another part; a list replaces a list."""
    found = deepcopy(spec)
    for name, value in part.items():
        both = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = laid_over(found[name], value) if both else value
    return found


def _aggregator(resources: Section, field: str, remedy: str) -> BadSpec:
    return BadSpec({"aggregator": {"resources": resources}}, f"spec.aggregator.resources.{field}", remedy)


def _agent(part: Section, field: str, remedy: str) -> BadSpec:
    return BadSpec({"agent": part}, f"spec.agent.{field}", remedy)


def _by_operator(part: Section, field: str, remedy: str) -> BadSpec:
    return BadSpec(part, field, remedy, Finder.OPERATOR)


def _not_at_apply(bad: BadSpec) -> BadSpec:
    """A case that no rule of an API server can state at a bearable cost."""
    return replace(bad, finder=Finder.OPERATOR)


def _in_network(model: Section, remedy: str, **more: Section) -> BadSpec:
    return BadSpec({"model": model, **more}, "", remedy, Finder.NETWORK)


TEST_SET: Section = {
    "aggregator": {"datasets": [DIGITS | {"name": "test"}]},
    "evaluation": {"testDataset": "test"},
}
DEVICE = "domain, such as nvidia.com/gpu"

JOBS: dict[str, BadSpec] = {
    # What no pod may have.
    "CPU requested above the limit": _aggregator(
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "requests.cpu", "lower the request"
    ),
    "memory requested above the limit": _aggregator(
        {"requests": {"memory": "2Gi"}, "limits": {"memory": "512Mi"}}, "requests.memory", "raise the limit"
    ),
    "no name of a resource": _aggregator({"requests": {"not a name!": "1"}}, "requests[not a name!]", DEVICE),
    "device of no name": _not_at_apply(
        _aggregator({"limits": {"nvidia.com/": 1}}, "limits[nvidia.com/]", DEVICE)
    ),
    "device of three parts": _not_at_apply(_aggregator({"limits": {"a/b/c": 1}}, "limits[a/b/c]", DEVICE)),
    "device under a quota's name": _aggregator(
        {"limits": {f"requests.{GPU}": 1}}, f"limits[requests.{GPU}]", DEVICE
    ),
    "device without a domain": _aggregator({"limits": {"gpu": 1}}, "limits.gpu", DEVICE),
    "storage as a resource": _aggregator({"requests": {"storage": "1Gi"}}, "requests.storage", DEVICE),
    "half a device": _aggregator({"limits": {GPU: "0.5"}}, f"limits[{GPU}]", "without a suffix"),
    "device without a limit": _aggregator({"requests": {GPU: 1}}, f"limits[{GPU}]", "write 1 here too"),
    "two amounts of devices": _aggregator(
        {"requests": {GPU: 1}, "limits": {GPU: 2}}, f"requests[{GPU}]", "one amount in both"
    ),
    "memory in thousandths": _aggregator({"limits": {"memory": "500m"}}, "limits.memory", "suffix of bytes"),
    "memory of one byte": _aggregator({"limits": {"memory": "1"}}, "limits.memory", "use 32Mi or more"),
    "memory of nothing": _aggregator({"limits": {"memory": 0}}, "limits.memory", "or leave it out"),
    "memory without its unit": _aggregator(
        {"limits": {"memory": "512"}}, "limits.memory", "use 32Mi or more"
    ),
    "no CPU": _aggregator({"limits": {"cpu": 0}}, "limits.cpu", "use 1m or more"),
    "no room for logs": _aggregator(
        {"limits": {"ephemeral-storage": "1k"}}, "limits.ephemeral-storage", "use 1Mi or more"
    ),
    "pages of no size": _not_at_apply(
        _aggregator(
            {"limits": {"hugepages-big": "4Mi", "memory": "1Gi"}}, "limits.hugepages-big", "hugepages-2Mi"
        )
    ),
    "half a page": BadSpec(
        {"aggregator": {"resources": {"limits": {"hugepages-2Mi": "3Mi", "memory": "1Gi"}}}},
        "spec.aggregator.resources.limits.hugepages-2Mi",
        "a multiple of it",
        Finder.OPERATOR,
    ),
    "pages and no memory": BadSpec(
        {"aggregator": {"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}},
        "spec.aggregator.resources.limits.hugepages-2Mi",
        "add one",
        Finder.OPERATOR,
    ),
    "words for an amount": _aggregator(
        {"limits": {"memory": "a lot"}}, "limits.memory", "suffix of Kubernetes"
    ),
    "storage of nothing": BadSpec(
        {"aggregator": {"storage": {"size": "0"}}}, "spec.aggregator.storage.size", "above zero"
    ),
    "storage in thousandths": BadSpec(
        {"aggregator": {"storage": {"size": "500m"}}}, "spec.aggregator.storage.size", "suffix of bytes"
    ),
    "storage class with a blank": BadSpec(
        {"aggregator": {"storage": {"storageClassName": "fast disk"}}},
        "spec.aggregator.storage.storageClassName",
        "small letters",
    ),
    # Names that Kubernetes does not know.
    "image in capitals": BadSpec(
        {"aggregator": {"image": "registry.example/Fed:1"}}, "spec.aggregator.image", "image"
    ),
    "image with two tags": BadSpec({"aggregator": {"image": "fed:1:2"}}, "spec.aggregator.image", "image"),
    "image with an empty part": BadSpec(
        {"agents": {"image": "registry.example//fed"}}, "spec.agents.image", "image"
    ),
    "image with half a digest": BadSpec(
        {"agents": {"image": "fed@sha256:abc"}}, "spec.agents.image", "image"
    ),
    "pull secret twice": BadSpec(
        {"aggregator": {"imagePullSecrets": ["login", "login"]}},
        "spec.aggregator.imagePullSecrets[1]",
        "remove one",
    ),
    "pull secret with two dots": BadSpec(
        {"aggregator": {"imagePullSecrets": ["a..b"]}}, "spec.aggregator.imagePullSecrets[0]", "subdomain"
    ),
    "claim in capitals": BadSpec(
        {"aggregator": {"datasets": [DIGITS | {"volume": {"persistentVolumeClaim": "Scans"}}]}},
        "spec.aggregator.datasets[0].volume.persistentVolumeClaim",
        "small letters",
    ),
    "directory of a node": BadSpec(
        {"aggregator": {"datasets": [DIGITS | {"volume": {"hostPath": "/etc"}}]}},
        "spec.aggregator.datasets[0].volume.hostPath",
        "use a persistentVolumeClaim",
    ),
    "dataset with two dots": BadSpec(
        {"aggregator": {"datasets": [DIGITS | {"name": "a..b"}]}},
        "spec.aggregator.datasets[0].name",
        "subdomain",
    ),
    "label with a blank": _not_at_apply(
        BadSpec(
            {"silos": {"refs": [], "selector": {"matchLabels": {"in trial": "yes"}}}},
            "spec.silos.selector.matchLabels[in trial]",
            "a label's key",
        )
    ),
    "label's value with a blank": BadSpec(
        {"silos": {"refs": [], "selector": {"matchLabels": {"region": "the sea"}}}},
        "spec.silos.selector.matchLabels.region",
        "a label's value",
    ),
    "credentials of no name": BadSpec(
        {"output": {"mlflow": {"trackingUri": "https://m.example", "credentialsSecret": "a..b"}}},
        "spec.output.mlflow.credentialsSecret",
        "subdomain",
    ),
    "address of no port": _by_operator(
        {"aggregator": {"url": "https://hub.example:0"}}, "spec.aggregator.url", "a port from 1 to 65535"
    ),
    # What does not go together.
    "warm-up longer than the job": BadSpec(
        {"training": {"warmupRounds": 21}}, "spec.training.warmupRounds", "use at most 20"
    ),
    "quorum of more silos than there are": BadSpec(
        {"participation": {"minSilos": 2}},
        "spec.participation.minSilos",
        "use 1 or less",
        reason="QuorumImpossible",
    ),
    "test set that nobody holds": BadSpec(
        {"evaluation": {"testDataset": "digits-test"}}, "spec.evaluation.testDataset", "add it there"
    ),
    "deadline of nothing": BadSpec(
        {"participation": {"roundDeadline": "0s"}}, "spec.participation.roundDeadline", "1h30m, 10m or 90s"
    ),
    "steps and passes": BadSpec(
        {"training": {"localSteps": 5, "localEpochs": 2}}, "spec.training.localEpochs", "remove localEpochs"
    ),
    "nothing to evaluate on": BadSpec(
        {"data": {"validationFraction": 0}}, "spec.data.validationFraction", "hold a part out"
    ),
    "more than its pods can be handed": _by_operator(
        {"data": {"classes": [f"class {number:06} {'x' * 40}" for number in range(12_000)]}},
        "spec",
        "shorten",
    ),
    "network that is not known": _by_operator(
        {"model": {"name": "mlpp", "config": {}}}, "spec.model.name", "mlp"
    ),
    "setting that the network has not": _by_operator(
        {"model": {"config": {"hiden": [16]}}}, "spec.model.config.hiden", "hidden"
    ),
    "metric that is not known": _by_operator(
        {"evaluation": {"metrics": ["recal"]}}, "spec.evaluation.metrics", "recall"
    ),
    "loader that is not known": _by_operator(
        {"aggregator": {"datasets": [DIGITS | {"loader": "npx", "config": {}}]}},
        "spec.aggregator.datasets[0].loader",
        "npz",
    ),
    # What the institution decides.
    "GPU that no trainer gets": BadSpec(
        {"training": {"device": "cuda"}}, "spec.training.device", "use auto or cpu", Finder.SILO
    ),
    "metrics that the policy forbids": BadSpec(
        {"evaluation": {"metrics": ["recall", "confusion_matrix"]}},
        "spec.evaluation.metrics",
        "leave out recall and confusion_matrix, or name a testDataset",
        Finder.SILO,
    ),
    "one metric that the policy forbids": BadSpec(
        {"evaluation": {"metrics": ["f1"]}}, "spec.evaluation.metrics", "leave out f1", Finder.SILO
    ),
    "dataset that the silo has not": BadSpec(
        {"data": {"dataset": "scans"}}, "spec.data.dataset", "use one of these", Finder.SILO
    ),
    # What the network decides.
    "frozen pattern of nothing": _in_network(
        {"parameters": {"frozen": ["nothing.*"]}},
        "spec.model.parameters.frozen[0]: 'nothing.*': matches no tensor",
    ),
    "local pattern of nothing": _in_network(
        {"parameters": {"local": ["head.*"]}}, "spec.model.parameters.local[0]: 'head.*': matches no tensor"
    ),
    "everything frozen": _in_network({"parameters": {"frozen": ["*"]}}, "spec.model.parameters"),
    "program in place of a network": _in_network(
        {"name": "python:os:system", "config": {}}, "python:os:system"
    ),
    "module that is not there": _in_network(
        {"name": "python:nowhere:make", "config": {}}, "python:nowhere:make"
    ),
    "attribute that is not there": _in_network(
        {"name": "python:json:nowhere", "config": {}}, "python:json:nowhere"
    ),
    "text in place of a network": _in_network(
        {"name": "python:json:dumps", "config": {}}, "python:json:dumps"
    ),
    "network of other classes": _in_network(
        {"name": "python:tests.unit.bad_networks:of_three_classes", "config": {}}, "[1, 10]"
    ),
    "network of other inputs": _in_network(
        {"name": "python:tests.unit.bad_networks:of_nine_pixels", "config": {}}, "spec.data.inputShape"
    ),
}

SILOS: dict[str, BadSpec] = {
    "request above the limit": _agent(
        {"resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "4"}}},
        "resources.requests.cpu",
        "lower the request",
    ),
    "device of no name": _not_at_apply(
        _agent({"resources": {"limits": {"/gpu": 1}}}, "resources.limits[/gpu]", DEVICE)
    ),
    "device without a limit": _agent(
        {"resources": {"requests": {GPU: 2}}}, f"resources.limits[{GPU}]", "write 2 here too"
    ),
    "parts of a device": _agent(
        {"resources": {"limits": {GPU: "500m"}}}, f"resources.limits[{GPU}]", "without a suffix"
    ),
    "memory of one byte": _agent(
        {"resources": {"limits": {"memory": 1}}}, "resources.limits.memory", "use 32Mi"
    ),
    "memory limit of zero": _agent(
        {"resources": {"limits": {"memory": "0"}}}, "resources.limits.memory", "use 32Mi"
    ),
    "CPU limit of zero": _agent(
        {"resources": {"limits": {"cpu": "0"}}}, "resources.limits.cpu", "use 1m or more"
    ),
    "room of one byte": _agent(
        {"resources": {"limits": {"ephemeral-storage": 1}}}, "resources.limits.ephemeral-storage", "use 1Mi"
    ),
    "storage of nothing": _agent({"storage": {"size": 0}}, "storage.size", "above zero"),
    "storage class in capitals": _agent(
        {"storage": {"storageClassName": "Fast"}}, "storage.storageClassName", "small letters"
    ),
    "node label with a blank": _not_at_apply(
        _agent({"nodeSelector": {"gpu pool": "a"}}, "nodeSelector[gpu pool]", "a label's key")
    ),
    "node label's value with a slash": _agent(
        {"nodeSelector": {"pool": "gpu/a100"}}, "nodeSelector.pool", "a label's value"
    ),
    "node label's value too long": _agent(
        {"nodeSelector": {"pool": "a" * 64}}, "nodeSelector.pool", "shorten it"
    ),
    "node label of two domains": _not_at_apply(
        _agent({"nodeSelector": {"a/b/c": "d"}}, "nodeSelector[a/b/c]", "a label's key")
    ),
    "toleration of any key and one value": _agent(
        {"tolerations": [{"operator": "Exists", "value": "gpu"}]}, "tolerations[0].value", "or use Equal"
    ),
    "toleration of a value and no key": _agent(
        {"tolerations": [{"value": "gpu"}]}, "tolerations[0].key", "operator Exists"
    ),
    "toleration of a key with a blank": _agent(
        {"tolerations": [{"key": "my gpu", "operator": "Exists"}]}, "tolerations[0].key", "a label's key"
    ),
    "toleration for a time of no eviction": _agent(
        {"tolerations": [{"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]},
        "tolerations[0].tolerationSeconds",
        "write that effect",
    ),
    "runtime class with a blank": _agent(
        {"runtimeClassName": "kata fc"}, "runtimeClassName", "small letters"
    ),
    "guard's image in capitals": _agent({"guardImage": "Guard"}, "guardImage", "image reference"),
    "guard's image with a blank": _agent({"guardImage": "guard: 1"}, "guardImage", "image reference"),
    "pull secret twice": _agent({"imagePullSecrets": ["a", "b", "a"]}, "imagePullSecrets[2]", "remove one"),
    "pull secret in capitals": _agent({"imagePullSecrets": ["Login"]}, "imagePullSecrets[0]", "subdomain"),
    "relative directory": BadSpec(
        {"datasets": [DIGITS | {"volume": {"hostPath": "srv/scans"}}]},
        "spec.datasets[0].volume.hostPath",
        "whole path",
    ),
    "directory of no name": BadSpec(
        {"datasets": [DIGITS | {"volume": {"hostPath": ""}}]},
        "spec.datasets[0].volume.hostPath",
        "whole path",
    ),
    "directory above": BadSpec(
        {"datasets": [DIGITS | {"volume": {"hostPath": "/srv/../etc"}}]},
        "spec.datasets[0].volume.hostPath",
        "whole path",
    ),
    "claim with a blank": BadSpec(
        {"datasets": [DIGITS | {"volume": {"persistentVolumeClaim": "my scans"}}]},
        "spec.datasets[0].volume.persistentVolumeClaim",
        "small letters",
    ),
    "volume of nothing": BadSpec(
        {"datasets": [DIGITS | {"volume": {}}]}, "spec.datasets[0].volume", "give one of them"
    ),
    "loader that is not known": _by_operator(
        {"datasets": [DIGITS | {"loader": "npx", "config": {}}]}, "spec.datasets[0].loader", "npz"
    ),
    "budget of a dataset that is not there": BadSpec(
        {"policy": {"privacyBudget": [{"dataset": "scans", "epsilon": 1, "delta": 1e-6}]}},
        "spec.policy.privacyBudget[0].dataset",
        "name one of them",
    ),
}
