"""How a silo changes its key: the old key announces the new one, and the new one says that it takes over.

Whoever knows the key that a person has accepted can follow the announcements to the present one, and needs to trust
nobody who keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import Problem
from fedsilo.wire import ROTATION, SUCCESSION, SigningKey, VerifyKey, sign_statement, verify_statement

_FIELDS = ("silo", "previousKey", "publicKey", "time")


def sign_rotation(silo: str, previous: SigningKey, key: SigningKey, now: datetime) -> Object:
    """The announcement of a key, signed by both.

    :param silo: `namespace/name`.
    """
    succession = {
        "silo": silo,
        "previousKey": previous.verify_key.to_text(),
        "publicKey": key.verify_key.to_text(),
        "time": timestamp(now),
    }
    return sign_statement(ROTATION, {"succession": sign_statement(SUCCESSION, succession, key)}, previous)


def previous_key(rotation: object) -> str | None:
    """The key that a rotation claims to replace, before anything of it is checked."""
    match rotation:
        case {"succession": {"previousKey": str(key)}}:
            return key
    return None


def read_rotation(rotation: object, silo: str, previous: str) -> str:
    """The key that takes over from `previous`.

    :raises Problem: `malformed`, `too-long` or `signature-invalid`; `wrong-sender` for that of another silo or key;
        `unsupported` where what was signed is none that this version knows.
    """
    announced = verify_statement(ROTATION, rotation, VerifyKey.from_text(previous))
    stated = announced.get("succession")
    if announced.keys() != {"succession"} or not isinstance(stated, dict):
        raise Problem("unsupported", f"{ROTATION}: has not the one field succession")
    key = VerifyKey.from_text(str(stated.get("publicKey")))
    succession = verify_statement(SUCCESSION, stated, key)
    if succession.keys() != set(_FIELDS):
        raise Problem("unsupported", f"{SUCCESSION}: has not the fields {', '.join(_FIELDS)}")
    for name, wanted in (("silo", silo), ("previousKey", previous)):
        if succession[name] != wanted:
            raise Problem("wrong-sender", f"{SUCCESSION}: {name} is {succession[name]}; must be {wanted}")
    if key.to_text() == previous:
        raise Problem("malformed", f"{SUCCESSION}: publicKey is the key that it replaces; make a new one")
    return key.to_text()


def keys_since(silo: str, key: str, rotations: Iterable[object]) -> tuple[str, ...]:
    """A key and all that have taken over since, the present one last.

    :param silo: `namespace/name`.
    :param rotations: in their order; those before `key` are not looked at.
    :raises Problem: as `read_rotation`, for the first that does not hold.
    """
    keys = [key]
    for rotation in rotations:
        if previous_key(rotation) == keys[-1]:
            keys.append(read_rotation(rotation, silo, keys[-1]))
        elif len(keys) > 1:
            raise Problem("wrong-sender", f"{ROTATION}: does not follow upon {keys[-1]}")
    return tuple(keys)
