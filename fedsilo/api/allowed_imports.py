"""Which Python code a document may name: any where a job is run, and elsewhere what a person has named, too.

To run a manifest is to run what it names. To look at a model, a manifest or a provenance is not, for it may be a
stranger's. Every import that a document asks for passes `require_allowed` first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from typing_extensions import override

from fedsilo.api.python_reference import PYTHON, is_dotted, python_reference
from fedsilo.errors import ImportNotAllowed, ManifestInvalid

log = logging.getLogger("fedsilo")

OPTION = "--allow-import"

BUILT_IN = frozenset(
    f"fedsilo.data.shipped:{name}" for name in ("descriptions", "diabetes", "digit_attributes", "digit_masks")
)
"""Loaders of this package, which read nothing but what scikit-learn comes with; they need no permission."""


@dataclass(frozen=True)
class ReviewContext:
    """A person looks at a document.

    :param document: its path, for messages.
    :param allowed: modules, each with all that is below it, and `module:attribute`, that the person has named.
    :param told: what was said to be imported, so that it is said once.
    """

    document: str
    allowed: frozenset[str]
    told: set[str] = field(default_factory=set)

    def allows(self, module: str, attribute: str) -> bool:
        """Whether the person has named it."""
        parts = module.split(".")
        packages = [".".join(parts[: count + 1]) for count in range(len(parts))]
        name = f"{module}:{attribute}"
        return name in BUILT_IN or not self.allowed.isdisjoint([*packages, name])

    def allows_some_of(self, package: str) -> bool:
        """Whether the person has named anything of this package, or module, of the highest level."""
        return any(re.split(r"[.:]", name)[0] == package for name in self.allowed)


@dataclass(frozen=True)
class RunContext:
    """A person runs a job."""


_purpose: ContextVar[ReviewContext | RunContext | None] = ContextVar("purpose", default=None)
"""What documents are opened for here; the processes of a job need not say it."""


@contextmanager
def running() -> Iterator[None]:
    """A person runs a job: what its manifest names is imported."""
    token = _purpose.set(RunContext())
    try:
        yield
    finally:
        _purpose.reset(token)


@contextmanager
def looking_at(document: Path | str, allow_imports: Collection[str] = ()) -> Iterator[None]:
    """A person looks at a document: of what it names these are imported, and what was allowed around this already.

    :param document: its path; that of the block around this one where it is "".
    :param allow_imports: modules, each with all that is below it, or `module:attribute`.
    :raises ManifestInvalid: for a name that is neither.
    """
    outer = _purpose.get()
    names = frozenset(map(_checked_module, allow_imports))
    if isinstance(outer, ReviewContext):
        purpose: ReviewContext | RunContext = ReviewContext(
            str(document) or outer.document, names | outer.allowed, outer.told
        )
    else:
        purpose = outer or ReviewContext(str(document), names)
    token = _purpose.set(purpose)
    try:
        yield
    finally:
        _purpose.reset(token)


def is_looking() -> bool:
    """Whether what documents name is imported only if a person has named it."""
    return isinstance(_purpose.get(), ReviewContext)


def require_allowed(module: str, attribute: str, subject: str, origin: str | None) -> None:
    """Return if a document may have this imported here; a person who has allowed it is told so, once.

    :param subject: what names it, as messages begin.
    :param origin: file of the module; None where it is not found.
    :raises ImportNotAllowed: otherwise, with what would run and the option that allows it.
    """
    purpose = _purpose.get()
    if not isinstance(purpose, ReviewContext):
        return
    name, said = f"{module}:{attribute}", f"{purpose.document}: {subject}" if purpose.document else subject
    where = f"of {origin}" if origin else "which is not found here"
    if not purpose.allows(module, attribute):
        raise ImportNotAllowed(
            f"{said}: would run {name}, {where}; a document alone lets nothing run: if you trust this one, add "
            f"{OPTION} {name} (in Python allow_imports=[{name!r}])"
        )
    if name not in purpose.told | BUILT_IN:
        purpose.told.add(name)
        log.warning("%s: imports %s, %s", said, name, where)


class _CurrentDirectory(MetaPathFinder):
    """Finds what a person has allowed, and nothing else, in the current directory, after everywhere else."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        del target
        purpose = _purpose.get()
        if path is None and isinstance(purpose, ReviewContext) and purpose.allows_some_of(fullname):
            return find_here(fullname)
        return None


CURRENT_DIRECTORY = _CurrentDirectory()


def find_here(name: str) -> ModuleSpec | None:
    """A module of the highest level in the current directory, without importing it.

    The root of the file system, where images start, is none: each of its folders would be a package.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it has been removed
        return None
    return None if here == here.parent else PathFinder.find_spec(name, [str(here)])


def _checked_module(name: str) -> str:
    bare = name.removeprefix(PYTHON)
    if python_reference(bare) is None and not is_dotted(bare):
        raise ManifestInvalid(
            f"{OPTION} {name!r}: is no module; write package.module, or package.module:attribute"
        )
    return bare
