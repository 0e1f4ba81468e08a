"""Rules of fields that belong to some values of a choice beside them: an optimizer's name, an encoding, a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fedsilo.api.training import MOMENTUM
from hack.crd_rule import Rule


def _of_the_rule(field: str, rules: list[str]) -> tuple[Rule, ...]:
    """Rules of a field that some rules of aggregation need and the others have no meaning for.

    Without the name, whose estimated cost is over the API server's budget.
    """
    return (
        Rule(
            f"has(self.{field}) || !(self.name in {rules})",
            "is missing, which the rule needs; add it",
            f".{field}",
        ),
        Rule(
            f"!has(self.{field}) || self.name in {rules}",
            "has no meaning for the rule; remove it",
            f".{field}",
        ),
    )


def _of_choice(field: str, given: str, choice: str, values: Iterable[str], text: str) -> Rule:
    """The rule of a field that has a meaning for some values of the choice beside it.

    A section's own default is asked before the choice has its own.

    :param given: CEL for whether the field is written.
    :param choice: the field that decides.
    :param values: those for which the field may be written.
    """
    return Rule(f"!({given}) || !has(self.{choice}) || self.{choice} in {list(values)}", text, f".{field}")


def _encoding_rules() -> tuple[Rule, ...]:
    """Rules of what belongs to an encoding, in either direction."""
    blocks = [2**power for power in range(4, 13)]
    return (
        _of_choice(
            "block",
            "has(self.block)",
            "encoding",
            ["int8"],
            "belongs to encoding int8; remove it, or use int8",
        ),
        Rule(
            f"!has(self.block) || self.block in {blocks}",
            "is not a power of two; use 256, which is usual",
            ".block",
        ),
    )


_LOSSY_ENCODINGS: Final = ("bfloat16", "float16", "int8", "topk")

_UPLOAD_RULES: Final = (
    *_encoding_rules(),
    _of_choice(
        "fraction",
        "has(self.fraction)",
        "encoding",
        ["topk"],
        "belongs to encoding topk; remove it, or use topk",
    ),
    Rule(
        "!has(self.delta) || self.delta || !has(self.encoding) || self.encoding != 'topk'",
        "has topk leave out most of the model, and not of its change; remove it",
        ".delta",
    ),
    *(
        _of_choice(
            field,
            f"has(self.{field}) && self.{field}",
            "encoding",
            _LOSSY_ENCODINGS,
            "has no meaning with float32, which loses nothing; remove it, or choose another encoding",
        )
        for field in ("delta", "errorFeedback")
    ),
)

_ADAMS: Final = ("adam", "adamw")

_OPTIMIZER_RULES: Final = (
    *(
        _of_choice(
            field,
            f"has(self.{field})",
            "name",
            _ADAMS,
            "has no meaning with sgd; remove it, or use adam or adamw",
        )
        for field in ("betas", "eps")
    ),
    *(
        Rule(
            f"!has(self.name) || self.name != '{name}' || !has(self.momentum) || self.momentum == {MOMENTUM}",
            f"has no meaning with {name}; remove it and set the first of betas",
            ".momentum",
        )
        for name in _ADAMS
    ),
    *(
        Rule(
            f"!has(self.name) || self.name != '{name}' || !has(self.nesterov) || !self.nesterov",
            f"has no meaning with {name}; remove it, or use sgd",
            ".nesterov",
        )
        for name in _ADAMS
    ),
    Rule(
        "!has(self.nesterov) || !self.nesterov || !has(self.name) || self.name != 'sgd'"
        " || !has(self.momentum) || self.momentum > 0.0",
        "has no meaning without momentum; set momentum, 0.9 for example, or remove it",
        ".nesterov",
    ),
)


CHOICE_RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "RuleSpec": (
        *_of_the_rule("byzantine", ["trimmed-mean", "krum", "multi-krum"]),
        *_of_the_rule("norm", ["norm-clipping"]),
        Rule(
            "!has(self.selected) || self.name == 'multi-krum'",
            "has no meaning for the rule; remove it",
            ".selected",
        ),
    ),
    "OptimizerSpec": _OPTIMIZER_RULES,
    "UploadSpec": _UPLOAD_RULES,
    "DownloadSpec": _encoding_rules(),
}
"""Model with a choice -> the rules of what belongs to it."""
