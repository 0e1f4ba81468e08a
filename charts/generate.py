"""What the charts share with the manifests and the models: `python -m charts.generate`.

Helm never upgrades what lies in a chart's `crds/`, so the CustomResourceDefinitions are templates like everything else.
They and the admission policies are those of `manifests/`, with the release's labels. The schema of a silo's values
takes from the models what it says of datasets, agent and policy. Each README lists the values with the comments of
`values.yaml`. Alerts and dashboard are files of the chart, which `manifests/monitoring` has as objects.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import yaml

from charts.dashboard import dashboard
from fedsilo.api.silo import SiloSpec

ROOT: Final = Path(__file__).resolve().parents[1]
CHARTS: Final = ROOT / "charts"
MARKER: Final = "<!-- Below this line: `make charts`, from values.yaml -->"

LABELS: Final = """\
  labels:
    {{- include "fedsilo.labels" . | nindent 4 }}
"""
CRD_METADATA: Final = """\
  {{- include "fedsilo.crd.metadata" . | nindent 2 }}
"""
KEPT_BY_INSTITUTION: Final = CRD_METADATA.replace("fedsilo.", "fedsilo-silo.")

OF_INSTITUTION: Final = ("silos", "siloagents")
"""CustomResourceDefinitions that an institution's own cluster has."""

NAMESPACE: Final = "fedsilo-system"
OPERATOR_ACCOUNTS: Final = f"system:serviceaccount:{NAMESPACE}:"
"""What the names of operator's and gateway's accounts begin with in the manifests; a release has its own namespace."""

RULES: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: fedsilo
  namespace: fedsilo-system
spec:
"""
DASHBOARD: Final = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: fedsilo-dashboard
  namespace: fedsilo-system
  labels:
    grafana_dashboard: "1"
data:
  fedsilo.json: |
"""

Schema = dict[str, Any]


def main() -> int:
    """Write everything that is generated."""
    for path, text in files().items():
        path.write_text(text)
    return 0


@cache
def files() -> Mapping[Path, str]:
    """Each generated file -> its text."""
    schema = CHARTS / "fedsilo-silo" / "values.schema.json"
    readmes = (CHARTS / name / "README.md" for name in ("fedsilo", "fedsilo-silo"))
    return {
        **_templates("crds", CRD_METADATA),
        **_institution_crds(),
        **_templates("admission", LABELS),
        schema: with_models(schema.read_text()),
        CHARTS / "fedsilo" / "files" / "dashboard.json": dashboard(),
        **_monitoring(),
        CHARTS / "fedsilo" / "templates" / "user-roles.yaml": _user_roles(),
        **{page: _readme(page) for page in readmes},
    }


def _templates(folder: str, metadata: str) -> dict[Path, str]:
    paths = sorted((ROOT / "manifests" / folder).glob("*.yaml"))
    return {
        CHARTS / "fedsilo" / "templates" / folder / path.name: template(path.read_text(), metadata)
        for path in paths
        if path.name != "kustomization.yaml"
    }


def _institution_crds() -> dict[Path, str]:
    """Those of the chart fedsilo-silo, for a release that is no part of the hub's cluster."""
    condition = '{{- if and (include "fedsilo-silo.invited" .) .Values.crds.install }}\n'
    folder = CHARTS / "fedsilo-silo" / "templates" / "crds"
    return {
        folder / f"{name}.yaml": condition
        + template((ROOT / "manifests" / "crds" / f"{name}.yaml").read_text(), KEPT_BY_INSTITUTION)
        + "{{- end }}\n"
        for name in OF_INSTITUTION
    }


def _user_roles() -> str:
    """The manifest's roles, whose labels are what they are added to."""
    text = (ROOT / "manifests" / "operator" / "user-roles.yaml").read_text()
    return text.replace("  labels:\n", '  labels:\n    {{- include "fedsilo.labels" . | nindent 4 }}\n')


def _monitoring() -> dict[Path, str]:
    folder = ROOT / "manifests" / "monitoring"
    rules = (CHARTS / "fedsilo" / "files" / "rules.yaml").read_text()
    return {
        folder / "rules.yaml": RULES + indent(rules, "  "),
        folder / "dashboard.yaml": DASHBOARD + indent(dashboard(), "    "),
    }


def template(manifest: str, metadata: str) -> str:
    """A manifest as a template.

    :param metadata: what follows the name of every object.
    :raises ValueError: when Helm would take a part of the manifest for its own.
    """
    if "{{" in manifest:
        raise ValueError("the manifest contains {{, which Helm would evaluate; write it in another way")
    named = manifest.replace(
        OPERATOR_ACCOUNTS, OPERATOR_ACCOUNTS.replace(NAMESPACE, "{{ .Release.Namespace }}")
    )
    return re.sub(r"^(metadata:\n  name: .+\n)", rf"\g<1>{metadata}", named, flags=re.MULTILINE)


def with_models(schema: str) -> str:
    """The schema of a silo's values with the definitions that the models give.

    Approvals are left out: people of the institution add them with `kubectl fedsilo approve`, beside the release.
    """
    models = SiloSpec.model_json_schema()["$defs"]
    del models["SiloPolicy"]["properties"]["approvals"], models["Approval"]
    content = json.loads(schema) | {"$defs": {name: _brief(models[name]) for name in sorted(models)}}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _brief(part: Any) -> Any:
    """Without titles and defaults, and so that what Helm says about a wrong value is short and names its place."""
    if isinstance(part, list):
        return [_brief(item) for item in part]
    if not isinstance(part, dict):
        return part
    return _one_type(
        _named_entries({key: _brief(value) for key, value in part.items() if not _is_noise(key, value)})
    )


def _one_type(part: Schema) -> Schema:
    """One list of types in place of alternatives."""
    choices = part.get("anyOf", [])
    if not choices or not all("type" in choice for choice in choices):
        return part
    del part["anyOf"]
    types = [kind for choice in choices for kind in _types(choice)]
    merged = {key: value for choice in choices for key, value in choice.items()}
    return part | merged | {"type": types}


def _named_entries(part: Schema) -> Schema:
    """Entries by name in place of rules about names, whose errors Helm 4 reports under the path of another value.

    A rule about the length of names is left to the API server.
    """
    names = part.pop("propertyNames", {}).get("enum")
    if names is None:
        return part
    entry = part["additionalProperties"]
    return part | {"properties": dict.fromkeys(names, entry), "additionalProperties": False}


def _is_noise(key: str, value: Any) -> bool:
    return key == "default" or (key == "title" and isinstance(value, str))


def _types(choice: Schema) -> list[str]:
    found = choice["type"]
    return found if isinstance(found, list) else [found]


def _readme(page: Path) -> str:
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in documented_values((page.parent / "values.yaml").read_text()):
        rows.append(f"| `{value.path}` | `{json.dumps(value.default)}` | {value.meaning} |")
    return "\n".join([page.read_text().partition(MARKER)[0] + MARKER, "", *rows, ""])


@dataclass(frozen=True)
class Value:
    """A value that a release may set.

    :param path: with dots.
    """

    path: str
    default: Any
    meaning: str


def documented_values(text: str) -> list[Value]:
    """The values of a `values.yaml`: whatever has a comment directly above it.

    :raises ValueError: when one has none.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    return list(_values(root, text.splitlines(), "", yaml.safe_load(text)))


def _values(node: yaml.Node, lines: list[str], prefix: str, content: Mapping[str, Any]) -> Iterator[Value]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        default = content[key.value]
        if comment := _comment(lines, key.start_mark.line, key.start_mark.column):
            yield Value(path, default, comment)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _values(value, lines, f"{path}.", default)
        else:
            raise ValueError(f"values.yaml: {path} has no comment; write above it what it means")


def _comment(lines: list[str], line: int, column: int) -> str:
    start = " " * column + "# "
    first = line
    while first and lines[first - 1].startswith(start):
        first -= 1
    return " ".join(text.removeprefix(start) for text in lines[first:line])


if __name__ == "__main__":
    sys.exit(main())
