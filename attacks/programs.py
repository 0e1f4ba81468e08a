"""The programs that exist, and the README that lists them.

A program is a module of `attacks.aggregator`, `attacks.gateway`, `attacks.guard` or `attacks.documents`. Its docstring
says what it does, and in two more paragraphs who does it (`By: ...`) and what must happen (`Must: ...`). Its function
`attack` does it, once: against a live process it is called again and again for some seconds, unless the module says
`RUNS_ONCE = True`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
ATTACK_TARGETS: Mapping[str, str] = {
    "aggregator": "On a live aggregator",
    "gateway": "On a live gateway",
    "guard": "On a live guard",
    "documents": "By documents of a stranger",
}
"""What is attacked, or by what -> the title of its programs."""


class NotRefusedError(AssertionError):
    """An attack was not answered as it must be."""


@dataclass(frozen=True)
class Program:
    """One attack on a service, and what must happen.

    :param attacked: one of `ATTACK_TARGETS`.
    :param by: who attacks, and what they know.
    :param must: what must happen.
    :param once: whether it is done once only.
    """

    name: str
    attacked: str
    what: str
    by: str
    must: str
    once: bool
    attack: Callable[[Any], None]


def programs(attacked: str) -> list[Program]:
    """All programs against one of `ATTACK_TARGETS`, by name."""
    package = importlib.import_module(f"attacks.{attacked}")
    modules = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [_program(attacked, name) for name in modules]


def all_programs() -> list[Program]:
    """Every program, those against the aggregator first."""
    return [program for attacked in ATTACK_TARGETS for program in programs(attacked)]


def readme() -> str:
    """Tables of all attacks in Markdown, for the README."""
    lines = []
    for attacked, title in ATTACK_TARGETS.items():
        lines += [f"## {title}", "", "| program | by | what it does | what must happen |"]
        lines += ["|---|---|---|---|"]
        for program in programs(attacked):
            link = f"[`{program.name}`]({attacked}/{program.name.replace('-', '_')}.py)"
            lines.append(f"| {link} | {program.by} | {program.what} | {program.must} |")
        lines.append("")
    return "\n".join(lines)


def _program(attacked: str, module_name: str) -> Program:
    module = importlib.import_module(f"attacks.{attacked}.{module_name}")
    paragraphs = [" ".join(part.split()) for part in (module.__doc__ or "").split("\n\n")]
    what, by, must = paragraphs
    assert by.startswith("By: ") and must.startswith("Must: "), f"the docstring of {module.__name__}"
    return Program(
        name=module_name.replace("_", "-"),
        attacked=attacked,
        what=what.rstrip("."),
        by=by.removeprefix("By: ").rstrip("."),
        must=must.removeprefix("Must: ").rstrip("."),
        once=getattr(module, "RUNS_ONCE", False),
        attack=module.attack,
    )
