"""From a model's JSON schema to a structural schema (Kubernetes: "Specifying a structural schema").

The differences: no references, null as a flag beside the type, exclusive bounds as flags (OpenAPI 3.0), the merge keys
of lists, and CEL for what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fedsilo.api.patterns import QUANTITY
from hack.crd_pairs import pair_rules
from hack.crd_pod_rules import AMOUNTS_RULE
from hack.crd_rules import PATTERN_RULES, RULES, choice, key_length

Schema = dict[str, Any]

LIST_KEYS: Final = {
    "Approval": "job",
    "Condition": "type",
    "DatasetSpec": "name",
    "ObjectRef": "name",
    "PrivacyBudget": "dataset",
    "SiloStatusEntry": "name",
}
"""Model of an entry -> the field that tells entries apart; two writers can then own two of them."""

ATOMIC_MODELS: Final = frozenset(
    {"Decision", "FrozenJob", "GatewayRoute", "Proposal", "StatedLedger", "StatedReceipts", "TrustBundle"}
)
"""Models whose fields one writer writes together: an API server that keeps an owner of each field does so for nobody,
and pays for it with every write of the object."""

_NULL: Final = {"type": "null"}
_BOUNDS: Final = (
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


def structural_schema(given: Schema, known: Mapping[str, Schema], model: str = "") -> Schema:
    """A part of a JSON schema, as a CustomResourceDefinition writes it.

    :param known: the models that the part may refer to, by name.
    :param model: the model that the part is of, if it is the whole of one.
    """
    if "$ref" in given:
        name = given["$ref"].rpartition("/")[2]
        return structural_schema(
            known[name] | {key: given[key] for key in given if key != "$ref"}, known, name
        )
    if _NULL in given.get("anyOf", ()):
        (value,) = (option for option in given["anyOf"] if option != _NULL)
        return _nullable(
            structural_schema(value | {key: given[key] for key in given if key != "anyOf"}, known)
        )
    given = _without_key_form(given)
    content = {key: given[key] for key in ("description", *_BOUNDS) if key in given} | _form(given, known)
    if given.get("default") is not None:
        content["default"] = _default(given["default"], content)
    rules = [*RULES.get(model, ()), *(pair_rules() if model == "FederatedJobSpec" else ())]
    if given.get("additionalProperties") is True:
        rules = []  # no rule sees the fields of what has any
    if given.get("pattern") in PATTERN_RULES:
        rules.append(PATTERN_RULES[given["pattern"]])
    if "maxLength" in given.get("propertyNames", {}):
        rules.append(key_length(given["propertyNames"]["maxLength"]))
    values = given.get("additionalProperties")
    if isinstance(values, dict) and values.get("pattern") == QUANTITY:
        rules.append(AMOUNTS_RULE)
    if rules:
        content["x-kubernetes-validations"] = [rule.schema() for rule in rules]
    return content | ({"x-kubernetes-map-type": "atomic"} if model in ATOMIC_MODELS else {})


def opaque_schema(model: Schema) -> Schema:
    """The JSON schema of a model whose fields are not spelled out; the model itself refuses what is wrong."""
    return {
        "description": model["description"],
        "type": "object",
        "additionalProperties": True,
        "maxProperties": 100,
    }


def _without_key_form(given: Schema) -> Schema:
    """A mapping whose keys have a form, without it: no structural schema says one, and the operator looks at it."""
    if "patternProperties" not in given:
        return given
    (values,) = given["patternProperties"].values()
    return given | {"additionalProperties": values}


def without_defaults(given: Schema) -> Schema:
    """The schema of a status: it states what was observed, and nothing else."""
    content = {key: item for key, item in given.items() if key != "default"}
    if "properties" in given:
        content["properties"] = {name: without_defaults(item) for name, item in given["properties"].items()}
    if "items" in given:
        content["items"] = without_defaults(given["items"])
    return content


def _form(given: Schema, known: Mapping[str, Schema]) -> Schema:
    """What kind of value it is."""
    if "anyOf" in given:
        return _amount(given["anyOf"])
    if "type" not in given:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if "const" in given or "enum" in given:
        return {"type": "string", "enum": given.get("enum", [given.get("const")])}
    match given["type"]:
        case "object":
            return {"type": "object"} | _fields(given, known)
        case "array":
            key = LIST_KEYS.get(given["items"].get("$ref", "").rpartition("/")[2])
            merged = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
            return {"type": "array", "items": structural_schema(given["items"], known)} | merged
        case scalar:
            return {"type": scalar} | _exclusive_bounds(given)


def _amount(options: list[Schema]) -> Schema:
    """A whole number or its text; each bound applies to the alternative that has it."""
    bounds = {key: option[key] for option in options for key in option if key != "type"}
    return {"x-kubernetes-int-or-string": True} | bounds


def _fields(given: Schema, known: Mapping[str, Schema]) -> Schema:
    names, values = given.get("propertyNames", {}), given.get("additionalProperties")
    if isinstance(values, dict) and "enum" in names:
        return {"properties": {name: structural_schema(values, known) for name in names["enum"]}}
    if isinstance(values, dict):
        return {"additionalProperties": structural_schema(values, known)}
    if values is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    fields = {name: structural_schema(field, known) for name, field in given["properties"].items()}
    required = given.get("required")
    return ({"required": required} if required else {}) | {"properties": fields}


def _exclusive_bounds(given: Schema) -> Schema:
    content: Schema = {}
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in given:
            content |= {bound: given[exclusive], exclusive: True}
    return content


def _nullable(content: Schema) -> Schema:
    """The API server holds null against an enumeration even where null is permitted, so that becomes a rule."""
    if "enum" in content:
        values = content.pop("enum")
        content["x-kubernetes-validations"] = [choice(values).schema()]
    return content | {"nullable": True}


def _default(value: Any, content: Schema) -> Any:
    """A default without what the fields' own defaults say, and without what is equivalent to being absent."""
    if not isinstance(value, dict) or "properties" not in content:
        return value
    said = {}
    for name, field in content["properties"].items():
        item = _default(value.get(name), field)
        if item not in (None, {}, field.get("default")):
            said[name] = item
    return said
