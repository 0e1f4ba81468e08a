"""Texts in notations of Kubernetes: durations, times and amounts, which stay as they were written."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override

from fedsilo.api.common import invalid_value
from fedsilo.api.patterns import DURATION, QUANTITY, TIME

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
