"""Noise on the change of a whole silo, which its guard adds: differential privacy with `unit: silo`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.guard import GuardPlace, GuardSide
from fedsilo.transforms.transform import Transform
from fedsilo.transforms.update_noise.conflicts import check_silo_privacy
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy


class UpdateNoiseTransform(Transform):
    """Has guards clip what silos send, and add noise, before it leaves."""

    @classmethod
    @override
    def of(cls, method: Method) -> Self | None:
        """The transform of a job whose differential privacy is of whole silos."""
        private = method.spec.privacy.differential_privacy
        return cls(method) if private is not None and private.unit == "silo" else None

    @override
    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """What the noise does not cover."""
        return check_silo_privacy(self.method)

    @override
    def describe(self) -> Mapping[str, str]:
        """Unit, epsilon and delta."""
        return {"privacy": str(self.spec.privacy.differential_privacy)}

    @override
    def in_guard(self, place: GuardPlace) -> GuardSide:
        from fedsilo.transforms.update_noise.guard import UpdateNoiseGuardSide

        privacy = UpdatePrivacy.of_job(self.spec)
        assert privacy is not None, "else there is no such transform"
        return UpdateNoiseGuardSide(privacy, place.drawn)
