"""The invitation to a hub: a file with all that an institution needs to join, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator
from typing_extensions import override

from fedsilo.api.common import API_VERSION, Fields, QualifiedName, invalid_value
from fedsilo.api.digest import canonical_digest
from fedsilo.api.documents import DocumentList, documents_in
from fedsilo.api.json_yaml import JsonDumper
from fedsilo.api.messages import message_of
from fedsilo.api.notations import Time
from fedsilo.api.patterns import CHECKSUM, TOKEN
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import ManifestInvalid
from fedsilo.files.plain_files import read_named

MAX_INVITATION_BYTES = 1 << 18

_AS_SENT = "it was changed on the way; take the file as it was sent, or ask for it again"

_FROM_THE_HUB = "give the file that kubectl fedsilo invite has printed"

_CHECKSUM_DIGITS = 16

Token = Annotated[str, StringConstraints(pattern=TOKEN, max_length=1024)]
Checksum = Annotated[str, StringConstraints(pattern=CHECKSUM, max_length=_CHECKSUM_DIGITS)]


class SiloInvitation(Fields):
    """Where the hub is, how to recognise it, and a token that registers one key."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["Invitation"] = Field(default="Invitation", description="Kind of the file.")
    hub: HubAddress = Field(description="The hub's gateway.")
    silo: QualifiedName = Field(description="The silo at the hub, `namespace/name`.")
    token: Token = Field(description="What registers a key, once.")
    expires: Time = Field(description="When the token ends, in UTC.")
    checksum: Checksum = Field(description="Of the rest: a letter that was changed on the way shows.")

    @model_validator(mode="after")
    def _require_checksum(self) -> Self:
        if self.checksum != self._expected_checksum():
            raise invalid_value(
                "does not fit the rest of the file",
                _AS_SENT,
                "checksum",
                value=self.checksum,
            )
        return self

    def _expected_checksum(self) -> str:
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"checksum"})
        return canonical_digest(fields)[:_CHECKSUM_DIGITS]

    @classmethod
    def of(cls, hub: HubAddress, silo: str, token: str, expires: Time) -> Self:
        """The invitation with its checksum."""
        draft = cls.model_construct(
            api_version=API_VERSION,
            kind="Invitation",
            hub=hub,
            silo=silo,
            token=token,
            expires=expires,
            checksum="",
        )
        return cls(hub=hub, silo=silo, token=token, expires=expires, checksum=draft._expected_checksum())

    def to_yaml(self) -> str:
        """The invitation as the text of a YAML file."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return yaml.dump(fields, Dumper=_BlockTextDumper, sort_keys=False)


class _BlockTextDumper(JsonDumper):
    """Writes text of several lines as such: a certificate as every tool shows it."""

    @override
    def represent_str(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _BlockTextDumper.represent_str)


def read_invitation_file(path: Path) -> SiloInvitation:
    """The invitation in a file.

    :raises ManifestInvalid: when it cannot be read, is not whole or no invitation.
    """
    try:
        text = read_named(path, MAX_INVITATION_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ManifestInvalid(f"{path}: cannot be read ({reason}); {_FROM_THE_HUB}") from error
    return read_invitation(text, str(path))


def read_invitation(text: str, source: str) -> SiloInvitation:
    """The invitation that a text is.

    :param source: where it comes from, for errors.
    :raises ManifestInvalid: when it is not whole or no invitation.
    """
    contents = documents_in(text, source) if len(text) <= MAX_INVITATION_BYTES else DocumentList((), ())
    if len(contents.documents) != 1 or contents.faults:
        raise ManifestInvalid(f"{source}: is no invitation; {_FROM_THE_HUB}")
    try:
        return SiloInvitation.model_validate(contents.documents[0].content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, (*fault["loc"], *fault.get("ctx", {}).get("path", ())))) or "the file"
        # Whoever has the file did not write it: whatever is wrong with it, the remedy is the same.
        problem, _ = message_of(fault, SiloInvitation)
        raise ManifestInvalid(f"{source}: {place}: {problem}; {_AS_SENT}") from None
