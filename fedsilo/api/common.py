"""What every resource of group `fedsilo.io/v1alpha1` is made of.

The models are the source of the CustomResourceDefinitions, so they keep to what a structural schema can say:
every list, string and mapping is bounded (an API server prices its rules by the worst case), no field is a
scalar here and an object there, and every default is written down.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from math import ceil, isfinite
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, core_schema
from typing_extensions import override

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

RFC1035_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
RFC1123_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
REGISTRY = r"^(localhost|[^/]*[.:][^/]*)/"
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
RFC1123_SUBDOMAIN = rf"^{_PART}([.]{_PART})*$"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY = rf"^({_PART}([.]{_PART})*/)?{_NAME}$"
LABEL_VALUE = rf"^({_NAME})?$"
_PATH_PART = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_HOST = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
IMAGE = (
    rf"^({_HOST}([.]{_HOST})*(:[0-9]{{1,5}})?/)?{_PATH_PART}(/{_PATH_PART})*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha(256:[0-9a-f]{64}|512:[0-9a-f]{128}))?$"
)
IMAGE_BY_DIGEST = r"^[a-z0-9][-a-zA-Z0-9._:/]*@sha256:[0-9a-f]{64}$"
HTTPS_URL = r"^https://[^\s/]+(/\S*)?$"
TRACKING_URL = r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$"
EXPERIMENT = r"^[A-Za-z0-9_./@ -]+$"
REGISTERED_MODEL = r"^[A-Za-z0-9_. -]+$"
IP_ADDRESS = r"^[0-9a-fA-F:.]+$"
SHA256 = r"^[0-9a-f]{64}$"
PUBLIC_KEY = r"^ed25519:[A-Za-z0-9+/]{43}=$"
QUALIFIED_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
TOKEN = r"^[!-~]+$"
CHECKSUM = r"^[0-9a-f]{16}$"
KEY_ID = r"^[0-9a-f]{16}$"
SIGNATURE = r"^[A-Za-z0-9+/]{86}==$"
REFERENCE = r"^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)*$"
TENSOR_PATTERN = r"^[!-~]+$"
DURATION = r"^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$"
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
QUANTITY = r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

FORMATS = {
    RFC1035_LABEL: "small letters, digits and '-', beginning with a letter (RFC 1035 label)",
    RFC1123_LABEL: "small letters, digits and '-' (RFC 1123 label)",
    RFC1123_SUBDOMAIN: "small letters, digits, '-' and '.' (RFC 1123 subdomain)",
    LABEL_KEY: "a label's key: at most 63 letters, digits, '-', '_' and '.', after a domain and '/' if it has one",
    LABEL_VALUE: "a label's value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at each end",
    IMAGE: "an image reference such as registry.example/fedsilo-trainer:0.1.0",
    IMAGE_BY_DIGEST: "an image by digest: name@sha256: and 64 hexadecimal digits",
    HTTPS_URL: "a URL that begins with https://",
    TRACKING_URL: "a URL that begins with https:// or http://, without user, password or query",
    EXPERIMENT: "letters, digits, spaces, '_', '-', '.', '@' and '/'",
    REGISTERED_MODEL: "letters, digits, spaces, '_', '-' and '.'",
    IP_ADDRESS: "an IP address",
    SHA256: "a SHA-256 in 64 small hexadecimal digits",
    PUBLIC_KEY: "'ed25519:' and the 32 bytes of the key in base64",
    QUALIFIED_NAME: "namespace/name, each in small letters, digits and '-'",
    TOKEN: "printable ASCII characters without spaces",
    CHECKSUM: "16 small hexadecimal digits",
    KEY_ID: "a key's id: the first 16 hexadecimal digits of its SHA-256",
    SIGNATURE: "the 64 bytes of a signature in base64",
    TENSOR_PATTERN: "printable ASCII characters without spaces, such as encoder.*",
    REFERENCE: "letters, digits, '-', '_' and '.', with ':' between parts",
}
"""What each pattern means, as text for people."""

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


_AS_PLAIN_TEXT = core_schema.plain_serializer_function_ser_schema(str.__str__, when_used="json")


class Notation(str, ABC):
    """A text in a notation of Kubernetes, which stays as it was written.

    :cvar SCHEMA: what a structural schema says of it.
    """

    __slots__ = ()

    SCHEMA: ClassVar[dict[str, Any]]

    @classmethod
    @abstractmethod
    def parse(cls, given: Any) -> Self:
        """Refuse what is not in this notation."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.parse, serialization=_AS_PLAIN_TEXT)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: core_schema.CoreSchema, _handler: Any) -> dict[str, Any]:
        return dict(cls.SCHEMA)


class Duration(Notation):
    """A length of time: hours, minutes and seconds, `1h30m`, `10m`, `90s`."""

    __slots__ = ()

    SCHEMA: ClassVar = {"type": "string", "pattern": DURATION, "maxLength": 18}

    @property
    def seconds(self) -> int:
        """The length in seconds."""
        found = re.fullmatch(DURATION, self)
        hours, minutes, seconds = (
            (int(part[:-1]) if part else 0 for part in found.groups()) if found else (0, 0, 0)
        )
        return hours * 3600 + minutes * 60 + seconds

    @classmethod
    @override
    def parse(cls, given: Any) -> Self:
        """Refuse what is no duration, and a duration of zero."""
        duration = cls(given) if isinstance(given, str) else cls()
        if duration.seconds == 0:
            raise invalid_value(
                "is not a duration above zero", "write hours, minutes and seconds: 1h30m, 10m or 90s"
            )
        return duration


class Time(Notation):
    """A moment (RFC 3339), with its offset from UTC: `2026-07-01T00:00:00Z`."""

    __slots__ = ()

    SCHEMA: ClassVar = {"type": "string", "format": "date-time", "pattern": TIME, "maxLength": 35}

    @property
    def moment(self) -> datetime:
        """This moment as an aware datetime, with its offset from UTC."""
        return datetime.fromisoformat(self)

    @classmethod
    @override
    def parse(cls, given: Any) -> Self:
        """Refuse what is no moment."""
        try:
            time = cls(given if isinstance(given, str) and re.fullmatch(TIME, given) else "")
            time.moment  # noqa: B018 (there is no 31st of February)
        except ValueError:
            problem, remedy = "is not a time", "write date, time and offset from UTC: 2026-07-01T00:00:00Z"
            raise invalid_value(problem, remedy) from None
        return time


_FACTORS = {None: Decimal(1), "m": Decimal("0.001")}
_FACTORS |= {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)}
_FACTORS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}


class Quantity(Notation):
    """An amount of a resource: `500m`, `2`, `10Gi`; a whole number in YAML is taken as its text.

    Half a core is `500m` or `"0.5"`: an API server knows integers and strings here, and no decimal number.
    """

    __slots__ = ()

    SCHEMA: ClassVar = {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "maxLength": 32}],
        "pattern": QUANTITY,
    }

    @property
    def exact_value(self) -> Decimal:
        """The amount in units (bytes, cores)."""
        found = re.fullmatch(QUANTITY, self)
        return Decimal(found[1]) * _FACTORS[found[2]] if found else Decimal(0)

    @property
    def value(self) -> int:
        """The amount in whole units (bytes, cores), rounded up as Kubernetes does."""
        return ceil(self.exact_value)

    @classmethod
    @override
    def parse(cls, given: Any) -> Self:
        """Refuse what is no amount."""
        text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
        if not re.fullmatch(QUANTITY, text) or len(text) > 32:
            raise invalid_value(
                "is not an amount", "write a number with a suffix of Kubernetes, such as 500m, 2 or 10Gi"
            )
        return cls(text)


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
