"""One rule of a definition, as an API server evaluates it (Kubernetes: CRD validation rules)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One entry of `x-kubernetes-validations`.

    :param holds: CEL; `self` is the value, `oldSelf` what it was before a change.
    :param text: problem and remedy; CEL that gives them where `computed`.
    :param field: path of the field at fault below `self`.
    """

    holds: str
    text: str
    field: str = ""
    computed: bool = False

    def schema(self) -> dict[str, str]:
        """The rule as a structural schema writes it."""
        content = {"rule": self.holds, "messageExpression" if self.computed else "message": self.text}
        return content | ({"fieldPath": self.field} if self.field else {})
