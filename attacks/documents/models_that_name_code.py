"""Descriptions of a model whose architecture or learning task is a function of Python, of a package or of a file beside
it: as it is, in the place of an encoder, and under names that are none.

By: somebody whose model a person opens.

Must: refused with one line that says what would run; nothing is imported, and `evaluate` and `export` build nothing but
what the person's manifest names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attacks.handed_over import LOAD_MODEL, MODEL, HandedOver

RUNS_ONCE = True

CODE = (
    "python:os:system",
    "python:builtins:eval",
    "python:subprocess:Popen",
    "python:fedsilo.cli.main:main",
    "python:beside:network",
    "python:package.beside:network",
    "python:model:network",
)
ODD_NAMES = (
    "python:os:system('touch canary')",
    "python:os.system",
    "python:os:path.join",
    "python:..beside:network",
    "python::eval",
    "python:beside",
    "python:/etc:passwd",
    "python:beside:__import__('os')",
    "pickle:beside:network",
    "os:system",
)
COMPOSED_MODELS: tuple[dict[str, Any], ...] = (
    {"name": "gated", "config": {"mixes": "logits", "base": {"name": "gated", "config": {}}}},
    {"name": "concatenated", "config": {}},
    {"name": "concatenated", "config": {"encoders": 10**9, "base": {"name": "mlp"}}},
    {"name": "concatenated", "config": {"encoders": -1, "base": "python:os:system"}},
)
"""Models that no method makes."""

OPENING = (
    ("evaluate", "--model", MODEL, "-f", "job.yaml"),
    ("export", "--model", MODEL, "-f", "job.yaml", "--torchscript", "model.pt"),
)


def attack(target: HandedOver) -> None:
    for name in CODE:
        at = _result_with_model(target, {"name": name, "config": {"command": "touch canary"}})
        target.expect_refused("would run", LOAD_MODEL, MODEL, at=at)
    for command in OPENING:
        target.expect_refused("the manifest's spec.model.name is mlp", *command, at=at)
    for inner in (
        {"name": "concatenated", "config": {"encoders": 2, "base": {"name": CODE[0]}}},
        {"name": "gated", "config": {"mixes": "logits", "base": {"name": CODE[0]}}},
    ):
        at = _result_with_model(target, inner)
        target.expect_refused("would run", LOAD_MODEL, MODEL, at=at)
        target.expect_refused("the manifest's spec.model.name is mlp", *OPENING[0], at=at)
    for model in (*({"name": name} for name in ODD_NAMES), *COMPOSED_MODELS):
        target.expect_refused("model", LOAD_MODEL, MODEL, at=_result_with_model(target, model))
    at = _result_with_model(
        target, {"name": "mlp", "config": {"hidden": [5]}}, task={"name": "python:beside:Task"}
    )
    target.expect_refused("would run beside:Task", LOAD_MODEL, MODEL, at=at)
    target.expect_refused("the manifest's spec.task is classification", *OPENING[0], at=at)


def _result_with_model(target: HandedOver, model: dict[str, Any], **changes: Any) -> Path:
    """A result whose model is said to be this, with modules of the stranger's beside it."""
    at = target.copy()
    (at / "package").mkdir()
    for module in ("beside.py", "model.py", "package/__init__.py", "package/beside.py"):
        (at / module).write_text(target.planted_code)
    target.edit_json(at / "model.json", lambda document: document.update(model=model, **changes))
    return at
