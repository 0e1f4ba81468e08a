"""One noun for one thing: what classes, functions and constants may be called."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import zip_longest

import pytest

from fedsilo.learning.catalogue import ARCHITECTURES
from fedsilo.methods import registry
from hack.nouns import WORD, by_noun, classes, public_classes
from tests.paths import ROOT
from tests.unit.test_language import PACKAGES

SHARED_NAMES = {
    "Condition": {"fedsilo/api/common.py", "fedsilo/api/diagnosis.py"},
}
"""Names of two classes: meta/v1's Condition is one with the time of its transition and one without it yet."""

MOST_NOUNS_PER_CLASS = 0.40

GLOSSARY = ROOT / "docs/glossary.md"

PAPERS_HEADING = "## Names of papers"

ADJECTIVES = """
absent active adaptive alike alive all alone another any apart available bad bare best better between big blank both
broken busy careless closed coarse comparable consistent crafted dark dense dirty each earlier early elsewhere
endless enough equal everything everywhere exact exclusive farthest fast fatal few fewer fewest fine finite first
flat foreign forever frequent fresh full further generous good great hard harmless healthy here hesitant hidden
honest hostile huge idle implausible initial inner innocent inside instead into invalid itself large larger largest
last late later latest lazy lean least less little long longest lying malformed malignant many meanwhile minimal
missing more most mutable near nearest nearly never new newer newest next noisy nowhere odd old older once orderly
other others otherwise ours outer outside pending personal plain positive private public quick raw readable ready
remote reserved rich same secure short shorter shortest silent slowly small smaller smallest something special
steady strict stricter strong structural stuck temporary there thin together transient true twice unanimous
undecided unfit unforeseen uniform unique unknown unread unreadable unready valid weak where whole wide worst
writable wrong
"""

PREPOSITIONS = """
about above across after again alongside around at away before behind below beneath beside beyond by during except
for from in off on onto out over past per since through to toward under until up upon via with within without
"""
"""Prepositions but `of`, by which a class names what else it can be made from: `StorageFailed.of(error)`."""

PARTICIPLES = """
begun bought bound brought built chosen drawn forgotten found frozen given gone heard held kept known lent lost made
met overtaken proven sealed seen sent shown sold spent sworn taken taught thought thrown told torn undergone
understood undone unheard unmade unmet unseen withheld woken worn written
"""
"""Participles that do not end in -ed."""

NO_NOUNS = frozenset(f"{ADJECTIVES} {PREPOSITIONS} {PARTICIPLES}".split())

VERBS_AND_NOUNS = "bed breed creed deed embed exceed feed need proceed seed shed speed weed"
"""Words in -ed that are no participles."""

QUANTITY = re.compile(
    r"(^|_)(AGE|BATCH|BUFFER|CHUNK|DEADLINE|DELAY|DURATION|INTERVAL|LENGTH|LIFETIME|LIMIT|LINE|PATIENCE|PAUSE|PERIOD|PIECE"
    r"|POLL|SIZE|TIME|TIMEOUT|WAIT)$"
)
"""Last word of a name that says how long or how large something is, without its unit."""


def lone_word(name: str) -> str | None:
    """A name of a single word, in lower case; None for one of several."""
    bare = name.strip("_")
    words = bare.split("_") if "_" in bare or not bare[:1].isupper() or bare.isupper() else WORD.findall(bare)
    return words[0].lower() if len(words) == 1 else None


def is_no_noun(name: str) -> bool:
    """Whether a name is one participle, adjective, adverb or preposition."""
    word = lone_word(name)
    if word is None or word in VERBS_AND_NOUNS.split() or name.startswith("__"):
        return False
    return word in NO_NOUNS or (word.endswith("ed") and len(word) > 3)


def definitions(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each class and function, but for predicates, which may be adjectives, and overrides."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returned = ast.unparse(node.returns) if node.returns else ""
            overrides = any(ast.unparse(decorator).endswith("override") for decorator in node.decorator_list)
            if not overrides and not returned.startswith(("bool", "TypeGuard", "TypeIs")):
                yield node.lineno, node.name


def constants(module: ast.Module) -> Iterator[tuple[int, str, ast.expr | None]]:
    """Line, name and value of each assignment of a module; None where a value is unpacked."""
    for statement in module.body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Tuple):
                        values: list[ast.expr] = value.elts if isinstance(value, ast.Tuple) else []
                        for one, of in zip_longest(target.elts, values):
                            yield statement.lineno, ast.unparse(one), of
                    else:
                        yield statement.lineno, ast.unparse(target), value
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield statement.lineno, name, value


def holds_its_name(name: str, value: ast.expr | None) -> bool:
    """Whether a constant is a word of a file or of the wire, and is named after it: `LOCAL = "local"`."""
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        return False
    words = re.findall(r"\w+", value.value)
    return bool(words) and words[-1].lower() == name.strip("_").lower()


def is_number(value: ast.expr | None) -> bool:
    """Whether an expression is a number, or arithmetic of numbers."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
    return False


def bad_names(module: ast.Module) -> Iterator[str]:
    """What is wrong with the names of a module, as `line name: fault`."""
    for line, name in definitions(module):
        if is_no_noun(name):
            yield f"{line} {name}: is no noun and no verb"
    for line, name, value in constants(module):
        if is_no_noun(name) and not holds_its_name(name, value):
            yield f"{line} {name}: is no noun"
        if QUANTITY.search(name) and is_number(value):
            yield f"{line} {name}: has no unit, such as SECONDS, BYTES, ROWS"


def glossary_nouns() -> Mapping[str, str]:
    """Noun -> the example that the glossary gives, from its tables."""
    rows = re.findall(r"^\| (\w+) \| .+ \| `(\w+)` \|$", GLOSSARY.read_text(), re.MULTILINE)
    assert len(rows) == len({noun for noun, _ in rows}), "a noun stands in the glossary twice"
    return dict(rows)


def paper_names() -> frozenset[str]:
    """Names of methods and networks: the registry's, the catalogue's, and those that the glossary lists beside."""
    listed = re.findall(r"`(\w+)`", GLOSSARY.read_text().partition(PAPERS_HEADING)[2].split("\n## ")[0])
    methods = {registry.get(name).__name__ for name in registry.names()}
    return frozenset({*listed, *methods, *(name.rpartition("/")[2].lower() for name in ARCHITECTURES)})


def errors_with_a_reason() -> frozenset[str]:
    """Classes below `FedsiloError`, each of which has the `reason` that it is named after."""
    bases = {found.name: found.bases for found in classes()}
    known = {"FedsiloError"}
    while more := {name for name, of in bases.items() if name not in known and known.intersection(of)}:
        known |= more
    return frozenset(known)


def test_every_class_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for one in classes():
        found[one.name].append(one.path)
    assert len(found) > 300
    assert {name: set(paths) for name, paths in found.items() if len(paths) > 1} == SHARED_NAMES


def test_every_class_ends_in_a_noun_of_the_glossary() -> None:
    nouns, papers, errors = glossary_nouns(), paper_names(), errors_with_a_reason()
    wrong = [
        f"{found.path}: {found.name}"
        for found in public_classes()
        if found.noun not in nouns
        and found.name not in errors
        and found.name not in papers
        and found.name.lower() not in papers
    ]
    assert not wrong, "\n".join([f"end in a noun of {GLOSSARY.relative_to(ROOT)}, or add one there", *wrong])


def test_every_noun_of_the_glossary_is_one_of_its_example() -> None:
    names = {found.name: found.noun for found in public_classes()}
    assert {noun: names.get(example) for noun, example in glossary_nouns().items()} == {
        noun: noun for noun in glossary_nouns()
    }


def test_classes_share_few_nouns() -> None:
    found = public_classes()
    assert len(by_noun(found)) <= MOST_NOUNS_PER_CLASS * len(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_a_noun_or_a_verb_and_says_its_unit(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for fault in bad_names(ast.parse(path.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def accepted() -> list[str]: ...", ["accepted"]),
        ("def closed() -> bool: ...", []),
        ("class A:\n    @property\n    def latest(self) -> str: ...", ["latest"]),
        ("class A(B):\n    @override\n    def latest(self) -> str: ...", []),
        ("@pytest.fixture\ndef without() -> int: ...", ["without"]),
        ("class Clipped: ...\nclass ClippedModel: ...", ["Clipped"]),
        ("def seed() -> int: ...\nFEED = 1", []),
        ("ONCE = True\n_DRAWN, DRAWS = 1, 2", ["ONCE", "_DRAWN"]),
        ("OLD, NEW = keys()", ["OLD", "NEW"]),
        ("LOCAL, BEST = 'local', 'evaluation.best'", []),
        ("OTHER = 'local'", ["OTHER"]),
        ("WAIT = 2 * 60\nWAIT_SECONDS = 3", ["WAIT"]),
        ("LINE_SIZE: Final = -1\nPOLL = Backoff(1)", ["LINE_SIZE"]),
    ],
)
def test_a_name_that_breaks_a_rule_is_found(text: str, found: list[str]) -> None:
    assert [fault.split()[1].rstrip(":") for fault in bad_names(ast.parse(text))] == found
