"""Counts the nouns that the programs' public classes end in: `python -m hack.nouns [--list]`.

A class is named after what it is, and the last word of its name is that noun. Few nouns for many classes mean that a
reader who knows docs/glossary.md knows what most classes are.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

PROGRAMS = ("fedsilo", "aggregator", "operator", "silo-agent")

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")


@dataclass(frozen=True)
class FoundClass:
    """A class of the programs: its name, its file from the project's folder, and the names of its bases."""

    name: str
    path: str
    bases: tuple[str, ...]

    @property
    def noun(self) -> str:
        """The last word of the name."""
        return str(WORD.findall(self.name)[-1])


def classes(programs: Sequence[str] = PROGRAMS) -> Iterator[FoundClass]:
    """Every class of the programs, the private ones included."""
    for program in programs:
        for path in sorted((ROOT / program).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = tuple(ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases)
                    yield FoundClass(node.name, path.relative_to(ROOT).as_posix(), bases)


def public_classes() -> list[FoundClass]:
    """Classes whose name does not begin with an underscore."""
    return [found for found in classes() if not found.name.startswith("_")]


def by_noun(found: Sequence[FoundClass]) -> Mapping[str, list[FoundClass]]:
    """Noun -> the classes that end in it, the commonest noun first."""
    nouns: dict[str, list[FoundClass]] = defaultdict(list)
    for one in found:
        nouns[one.noun].append(one)
    return dict(sorted(nouns.items(), key=lambda item: (-len(item[1]), item[0])))


def main() -> None:
    """Print how many nouns there are per class and, with `--list`, each with its classes."""
    parser = argparse.ArgumentParser(prog="python -m hack.nouns", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print each noun with its classes")
    args = parser.parse_args()
    found = public_classes()
    nouns = by_noun(found)
    print(f"{len(nouns)} nouns of {len(found)} classes: {len(nouns) / len(found):.3f}")
    if args.list:
        for noun, ones in nouns.items():
            print(f"{noun} {len(ones)}: {', '.join(one.name for one in ones)}")


if __name__ == "__main__":
    main()
