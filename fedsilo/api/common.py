"""What every resource of group `fedsilo.io/v1alpha1` is made of.

The models are the source of the CustomResourceDefinitions, so they keep to what a structural schema can say:
every list, string and mapping is bounded (an API server prices its rules by the worst case), no field is a
scalar here and an object there, and every default is written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError
from typing_extensions import override

from fedsilo.api.patterns import (
    HTTPS_URL,
    IMAGE,
    IP_ADDRESS,
    KEY_ID,
    LABEL_KEY,
    LABEL_VALUE,
    PUBLIC_KEY,
    QUALIFIED_NAME,
    REFERENCE,
    REGISTRY,
    RFC1035_LABEL,
    RFC1123_LABEL,
    RFC1123_SUBDOMAIN,
    SHA256,
    SIGNATURE,
)

API_VERSION: Final = "fedsilo.io/v1alpha1"

MAX_SILOS = 1000
"""Most silos of one job, and most datasets of one silo."""

EXAMPLES_OF_AN_UPDATE = 5
"""Fewest examples that a model which leaves a silo was trained on, unless a class may have fewer."""

# Strict scalars: a quoted number is a string in Kubernetes, therefore here too.
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Flag = Annotated[bool, Strict()]
Dimension = Annotated[Integer, Field(ge=1, le=65536)]

Label = Annotated[str, StringConstraints(pattern=RFC1123_LABEL, max_length=63)]
ResourceName = Annotated[str, StringConstraints(pattern=RFC1035_LABEL, max_length=40)]
DatasetName = Annotated[str, StringConstraints(pattern=RFC1123_SUBDOMAIN, max_length=63)]
SecretName = Annotated[str, StringConstraints(pattern=RFC1123_SUBDOMAIN, max_length=253)]
Reference = Annotated[str, StringConstraints(pattern=REFERENCE, max_length=253)]
ImageName = Annotated[str, StringConstraints(pattern=IMAGE, max_length=512)]
Image = Annotated[ImageName, AfterValidator(lambda image: check_registry(image))]
Url = Annotated[
    str, StringConstraints(pattern=HTTPS_URL, max_length=2048), AfterValidator(lambda url: check_server(url))
]
IpAddress = Annotated[str, StringConstraints(pattern=IP_ADDRESS, max_length=45)]
CertificatePem = Annotated[
    str,
    StringConstraints(
        pattern=r"^-----BEGIN CERTIFICATE-----\n[\s\S]+-----END CERTIFICATE-----\s*$", max_length=65536
    ),
]
Sha256 = Annotated[str, StringConstraints(pattern=SHA256, max_length=64)]
PublicKey = Annotated[str, StringConstraints(pattern=PUBLIC_KEY, max_length=52)]
QualifiedName = Annotated[str, StringConstraints(pattern=QUALIFIED_NAME, max_length=104)]
KeyId = Annotated[str, StringConstraints(pattern=KEY_ID, max_length=16)]
Signature = Annotated[str, StringConstraints(pattern=SIGNATURE, max_length=88)]
Text = Annotated[str, StringConstraints(max_length=1024)]
LongText = Annotated[str, StringConstraints(max_length=32768)]

LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE, max_length=63)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]


def invalid_value(problem: str, remedy: str, *path: str | int, value: Any = None) -> PydanticCustomError:
    """The error that a validator of a model raises.

    :param path: where under the model the fault lies; the model itself when empty.
    :param value: what is written there; shown only together with a path.
    """
    context = {"problem": problem, "remedy": remedy, "path": path, "value": value}
    return PydanticCustomError("fedsilo", "{problem}; {remedy}", context)


def invalid_values(errors: Sequence[PydanticCustomError]) -> PydanticCustomError:
    """One error for those of `invalid_value`, at least one, that a validator has found together."""
    first, *others = (error.context or {} for error in errors)
    return PydanticCustomError("fedsilo", "{problem}; {remedy}", first | {"others": others})


def check_one_of(**given: bool) -> None:
    """Refuse fields of which not exactly one is given.

    :param given: name of the field as in YAML -> whether it is there.
    """
    names = " and ".join(given)
    if all(given.values()):
        raise invalid_value(f"has {names} together", "remove all but one")
    if not any(given.values()):
        raise invalid_value(f"has none of {names}", "give one of them")


def check_once(field: str, names: Sequence[str] | None) -> None:
    """Refuse a list, of whose field this is the name, that has an entry twice: an API server merges it by them."""
    for position, name in enumerate(names or ()):
        if name in (names or ())[:position]:
            raise invalid_value("is there twice", "remove one", field, position, value=name)


def check_server(url: str) -> str:
    """Refuse a URL that nobody can connect to, or that is more than the address of a server.

    A user before the host makes the host look like another one, and what is appended to the URL would become a part of
    its query or fragment (RFC 3986, sections 3.4, 3.5 and 7.6).
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if "@" in parts.netloc or "?" in url or "#" in url or "\\" in url or not url.isascii():
        raise invalid_value(
            "has a user, a query, a fragment or a character that no address has",
            "write https://HOST or https://HOST:PORT, with a path where the server has one, in ASCII",
        )
    if not host or port == 0:
        raise invalid_value(
            "has no host, or a port that is none",
            "write https://HOST or https://HOST:PORT, with a port from 1 to 65535",
        )
    return url


REGISTRY_PROBLEM: Final = (
    "names no registry, so that each node takes one of its own",
    "write it before the name, such as registry.example/fedsilo-trainer:0.1.0",
)
"""Problem and remedy of such an image."""


def check_registry(image: str) -> str:
    """Refuse an image whose registry a node would choose (OCI distribution: "Pulling manifests")."""
    if re.match(REGISTRY, image) is None:
        raise invalid_value(*REGISTRY_PROBLEM)
    return image


def _require_finite(value: dict[str, Any]) -> dict[str, Any]:
    for path, number in _numbers(value):
        if not isfinite(number):
            raise invalid_value("is not a finite number", "write a finite number", *path, value=number)
    return value


def _numbers(value: Any, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(item, *path, key)


FreeForm = Annotated[dict[str, Any], Field(max_length=100), AfterValidator(_require_finite)]
"""A mapping whose fields another package defines: the settings of a method, model, loader or partition.

It holds what JSON holds, so no infinity and nothing that is not a number."""


class Fields(BaseModel):
    """Base of every part of a document: camelCase in YAML, snake_case in Python, unknown fields refused.

    A document names a field in camelCase alone, as an API server knows it; Python's names are those of the constructor.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    @classmethod
    @override
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        return super().model_validate(obj, by_name=False, **options)

    @classmethod
    @override
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        return super().model_validate_json(json_data, by_name=False, **options)


class Metadata(Fields):
    """Names and labels of an object; fields that the API server adds are accepted and ignored."""

    name: ResourceName = Field(
        description="Name of the object; at most 40 characters, so that children add suffixes."
    )
    namespace: Label = Field(default="default", description="Namespace of the object.")
    labels: Labels = Field(
        default_factory=dict, description="Labels; a job's selector matches those of Silos."
    )
    annotations: dict[str, str] = Field(default_factory=dict, description="Notes of other tools.")
    uid: Text | None = Field(default=None, description="Identity given by the API server.")
    generate_name: Text | None = Field(default=None, description="Set by the API server.")
    generation: Integer | None = Field(default=None, description="Set by the API server.")
    resource_version: Text | None = Field(default=None, description="Set by the API server.")
    creation_timestamp: Text | None = Field(default=None, description="Set by the API server.")
    deletion_timestamp: Text | None = Field(default=None, description="Set by the API server.")
    deletion_grace_period_seconds: Integer | None = Field(default=None, description="Set by the API server.")
    finalizers: tuple[str, ...] = Field(default=(), description="Set by controllers.")
    owner_references: tuple[dict[str, Any], ...] = Field(default=(), description="Set by controllers.")
    managed_fields: tuple[dict[str, Any], ...] = Field(default=(), description="Set by the API server.")


class ObjectRef(Fields):
    """A namespaced object by name."""

    namespace: Label = Field(default="default", description="Namespace of the object.")
    name: ResourceName = Field(description="Name of the object.")

    @override
    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Condition(Fields):
    """A condition as in meta/v1."""

    model_config = ConfigDict(extra="ignore")

    type: Text = Field(description="What the condition is about; the key of the list.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Text = Field(description="Why, in one CamelCase word.")
    message: LongText = Field(default="", description="Why, in a sentence for a person.")
    observed_generation: Integer | None = Field(default=None, description="Generation that it was found for.")
    last_transition_time: Text = Field(description="RFC 3339 time at which status changed last.")
