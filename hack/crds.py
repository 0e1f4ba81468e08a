"""The CustomResourceDefinitions, made from the models: `python -m hack.crds manifests/crds/`.

The models give the schemas; what is written here is what `kubectl get` shows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel

from fedsilo.api.agent import SiloAgent, SiloAgentStatus
from fedsilo.api.common import API_VERSION, Metadata
from fedsilo.api.job import FederatedJob
from fedsilo.api.silo import Silo
from fedsilo.api.silo_status import SiloStatus
from fedsilo.api.status import FederatedJobStatus
from hack.crd_rules import FROZEN_TEXTS, MUTABLE_FIELDS, frozen_rules, name_rules
from hack.crd_schemas import Schema, opaque_schema, structural_schema, without_defaults

HEADER: Final = "# Written by `make crds` from fedsilo.api; not by hand.\n"
GROUP, VERSION = API_VERSION.split("/")


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def schema(self) -> Schema:
        """The column as `additionalPrinterColumns` writes it."""
        content = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return content | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True)
class Resource:
    """What a CustomResourceDefinition contains beside its schema.

    :param status: model of the status subresource.
    :param short: short names.
    :param opaque: models whose fields are not spelled out. Those of core/v1 would be a third of a definition, and an
        agent has a copy of the job, which was checked with the job.
    """

    model: type[BaseModel]
    status: type[BaseModel]
    plural: str
    short: tuple[str, ...]
    columns: tuple[Column, ...]
    opaque: tuple[str, ...] = ("Affinity", "TopologySpreadConstraint")


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")

RESOURCES: Final = (
    Resource(
        FederatedJob,
        FederatedJobStatus,
        "federatedjobs",
        ("fj",),
        (
            Column("State", ".status.phase"),
            Column("Round", ".status.progress"),
            Column("Silos", ".status.siloProgress"),
            Column("Score", ".status.score"),
            Column("Method", ".spec.method.name"),
            AGE,
            Column("Model", ".spec.model.name", wide=True),
            Column("Deadline", ".status.roundDeadline", wide=True),
            # Of the first condition that does not hold: the step at which the job waits, or why it is over.
            Column("Reason", '.status.conditions[?(@.status!="True")].reason', wide=True),
        ),
    ),
    Resource(
        Silo,
        SiloStatus,
        "silos",
        ("fs",),
        (
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
            Column("Valid", '.status.conditions[?(@.type=="Valid")].status'),
            Column("Connected", '.status.conditions[?(@.type=="Connected")].status'),
            AGE,
            Column("Seen", ".status.lastSeen", "date", wide=True),
            Column("Key", ".status.publicKey", wide=True),
        ),
    ),
    Resource(
        SiloAgent,
        SiloAgentStatus,
        "siloagents",
        ("fsa",),
        (
            Column("State", ".status.phase"),
            Column("Job", ".spec.job.name"),
            Column("Silo", ".spec.silo.name"),
            AGE,
            Column("Job namespace", ".spec.job.namespace", wide=True),
            Column("Connected", '.status.conditions[?(@.type=="Connected")].status', wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        opaque=("PodTemplate",),
    ),
)


def main(argv: list[str] | None = None) -> int:
    """Write one file for each kind into a directory."""
    (directory,) = sys.argv[1:] if argv is None else argv
    for name, text in files().items():
        (Path(directory) / name).write_text(text)
    return 0


@cache
def files() -> Mapping[str, str]:
    """Name of each file -> its text."""
    return {
        f"{resource.plural}.yaml": HEADER
        + yaml.dump(
            definition(resource), Dumper=yaml.CSafeDumper, sort_keys=False, width=110, allow_unicode=True
        )
        for resource in RESOURCES
    }


@cache
def definition(resource: Resource) -> Schema:
    """The CustomResourceDefinition of a kind."""
    kind = resource.model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                "shortNames": list(resource.short),
                "categories": ["fedsilo"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.schema() for column in resource.columns],
                    "schema": {"openAPIV3Schema": _root(resource)},
                }
            ],
        },
    }


def _root(resource: Resource) -> Schema:
    schema = resource.model.model_json_schema()
    status = resource.status.model_json_schema()
    known = schema["$defs"] | {name: opaque_schema(schema["$defs"][name]) for name in resource.opaque}
    content = structural_schema(schema, known, resource.model.__name__)
    content["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": _with_frozen_rules(
            content["properties"]["spec"], schema["properties"]["spec"]["$ref"].rpartition("/")[2]
        ),
        "status": without_defaults(structural_schema(status, status.get("$defs", {}))),
    }
    longest = Metadata.model_json_schema()["properties"]["name"]["maxLength"]
    rules = [rule.schema() for rule in name_rules(longest)]
    return content | {
        "required": ["spec"],
        "x-kubernetes-validations": [*rules, *content.get("x-kubernetes-validations", ())],
    }


def _with_frozen_rules(spec: Schema, model: str) -> Schema:
    """The schema of a spec, with the rules by which its typed fields do not change where they may not."""
    if (text := FROZEN_TEXTS.get(model)) is None:
        return spec
    fields = [name for name in spec["properties"] if name not in MUTABLE_FIELDS]
    rules = [rule.schema() for rule in frozen_rules(fields, text)]
    return spec | {"x-kubernetes-validations": [*spec.get("x-kubernetes-validations", ()), *rules]}


if __name__ == "__main__":
    sys.exit(main())
