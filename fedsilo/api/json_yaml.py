"""The part of YAML that JSON has: what a scalar means to `kubectl`, and how much work a file may be.

PyYAML takes some 15 microseconds for a token and has no limits of its own, so that a file of a few megabytes of commas
would take half a minute, and one of a few lines of aliases all memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml
from typing_extensions import override

from fedsilo.api.faults import ABSENT_VALUE

MAX_TOKENS = 200_000
"""Values, keys and punctuation marks of a file, more than a federation of a thousand silos has."""

MAX_VALUES = 1_000_000
"""Values of a document once its aliases are written out."""

MAX_NUMBER_CHARACTERS = 100
"""Characters of a number: more than any double needs, and few enough for arithmetic on it to cost nothing."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, counted from 0; PyYAML's own takes three times the memory, twice for every value."""

    line: int
    column: int


CollectedFault = tuple[Mark, Any, str, str]
"""A fault that leaves the rest readable: place, value, problem and remedy."""

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class SizeError(yaml.YAMLError):
    """A file that is more work than any manifest.

    :param problem: what it has too much of.
    :param remedy: what to do.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class ScalarError(yaml.YAMLError):
    """A scalar that is not what its tag, or its form, says.

    :ivar value: as it is written; `ABSENT_VALUE` where it cannot be printed.
    """

    def __init__(self, node: yaml.Node, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.mark = beginning(node)
        printable = isinstance(node, yaml.ScalarNode) and not _SURROGATE.search(node.value)
        self.value: Any = node.value if printable else ABSENT_VALUE
        self.problem = problem
        self.remedy = remedy


class JsonLoader(yaml.SafeLoader):
    """Constructs only what JSON has; faults that leave the rest readable are collected.

    :param line: of the file, in which the text begins, from 0.
    :param fetched: tokens of the file that were read before it, of the limit.
    """

    def __init__(self, text: str, line: int = 0, fetched: int = 0) -> None:
        super().__init__(text)
        self.collected: list[CollectedFault] = []
        self.line = line
        self.fetched = fetched

    @override
    def get_mark(self) -> Any:
        """Where the reader is."""
        return Mark(self.line, self.column)

    @override
    def fetch_more_tokens(self) -> None:
        """Read on, up to the limit.

        :raises SizeError: beyond it.
        """
        self.fetched += 1
        if self.fetched > MAX_TOKENS:
            problem = f"holds more than {MAX_TOKENS} values, keys and punctuation marks"
            raise SizeError(problem, "write a smaller file")
        super().fetch_more_tokens()

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node.

        :raises ScalarError: when it is not what its tag says.
        """
        try:
            return super().construct_object(node, deep=deep)
        except UnicodeError as error:
            problem, remedy = (
                "has half of a surrogate pair, which is no character",
                "write the character itself",
            )
            raise ScalarError(node, problem, remedy) from error
        except (ValueError, LookupError) as error:
            # What PyYAML's constructors raise on a value that they cannot read is not specified.
            kind = str(node.tag).removeprefix(_TAG)
            problem, remedy = (
                f"cannot be read as !!{kind}",
                "correct it, or write a string in quotes without a tag",
            )
            raise ScalarError(node, problem, remedy) from error

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are strings; a key that is none, or is given twice, is collected."""
        seen: set[str] = set()
        # A tag can say that something else is a mapping, which the base class refuses.
        for key, _ in node.value if node.id == "mapping" else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                continue
            if key.tag != f"{_TAG}str":
                self._collect(key, "is not a string as a key", "put the key in quotes")
            elif key.value in seen:
                self._collect(key, "is given twice in one mapping", "keep one")
            seen.add(key.value)
        return {str(key): value for key, value in super().construct_mapping(node, deep=deep).items()}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """A string, as JSON has it."""
        # JSON escapes characters beyond the basic plane in two halves, which YAML would leave apart.
        text: str = self.construct_scalar(node)
        return text.encode("utf-16", "surrogatepass").decode("utf-16")

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """A whole number of bounded length."""
        self._require_short(node)
        number: int = self.construct_yaml_int(node)
        return number

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """A number of bounded length."""
        self._require_short(node)
        number: float = self.construct_yaml_float(node)
        return number

    def _require_short(self, node: yaml.ScalarNode) -> None:
        length = len(self.construct_scalar(node))
        if length > MAX_NUMBER_CHARACTERS:
            problem = f"is a number of {length} characters"
            raise ScalarError(node, problem, f"use at most {MAX_NUMBER_CHARACTERS}, or put it in quotes")

    def _collect(self, node: yaml.ScalarNode, problem: str, remedy: str) -> None:
        self.collected.append((beginning(node), node.value, problem, remedy))


JsonLoader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*(f"{_TAG}{name}" for name in _JSON_TAGS), None)
}
JsonLoader.add_constructor(f"{_TAG}str", JsonLoader.construct_text)
JsonLoader.add_constructor(f"{_TAG}int", JsonLoader.construct_integer)
JsonLoader.add_constructor(f"{_TAG}float", JsonLoader.construct_number)
JsonLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in ("null", "bool", "merge")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
JsonLoader.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
JsonLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|\.(nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)


class JsonDumper(yaml.SafeDumper):
    """Writes what `JsonLoader` reads: a text that would be a number there, such as `12e34`, stands in quotes."""


JsonDumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()), *resolvers]
    for first, resolvers in (
        yaml.SafeDumper.yaml_implicit_resolvers | JsonLoader.yaml_implicit_resolvers
    ).items()
}


def expanded_value_count(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Values in a tree once every alias is written out: a short file can stand for more than memory holds."""
    if id(node) not in known:
        known[id(node)] = MAX_VALUES  # what a node that contains itself counts
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(expanded_value_count(child, known) for child in children)
    return known[id(node)]


def beginning(node: yaml.Node) -> Mark:
    """Where a node begins."""
    mark: Any = node.start_mark
    assert isinstance(mark, Mark)
    return mark
