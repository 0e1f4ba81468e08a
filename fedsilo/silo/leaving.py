"""How a silo leaves the consortium: it says so itself, with its key, and nobody can say it for it."""

from __future__ import annotations

from datetime import datetime

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import Problem
from fedsilo.wire import LEAVING, SigningKey, VerifyKey, sign_statement, verify_statement

_FIELDS = {"silo", "hub", "time"}


def sign_leaving(silo: str, hub: str, now: datetime, key: SigningKey) -> Object:
    """The statement that the silo leaves.

    :param silo: `namespace/name`.
    :param hub: id of the hub that it leaves.
    """
    return sign_statement(LEAVING, {"silo": silo, "hub": hub, "time": timestamp(now)}, key)


def read_leaving(statement: object, silo: str, public_key: str) -> tuple[str, str]:
    """Id of the hub that a silo has left, and since when.

    :raises Problem: `malformed`, `too-long` or `signature-invalid`; `wrong-sender` for that of another silo;
        `unsupported` where what was signed is none that this version knows.
    """
    found = verify_statement(LEAVING, statement, VerifyKey.from_text(public_key))
    if found.keys() != _FIELDS or not all(isinstance(value, str) for value in found.values()):
        raise Problem("unsupported", f"{LEAVING}: has not the fields {', '.join(sorted(_FIELDS))}")
    if found["silo"] != silo:
        raise Problem("wrong-sender", f"{LEAVING}: silo is {found['silo']}; must be {silo}")
    return found["hub"], found["time"]
