"""Where schemata differ, and which differences a job admits.

A job that names its classes is the reference for everybody, and a silo may lack a class. Where it gives their number
only, all that have names must have the same; the reference is then what most of them have.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from typing_extensions import override

from fedsilo.api.data import DataSpec
from fedsilo.api.text import comma_separated, join_names
from fedsilo.data.schema import Schema, TableColumn

MismatchRule = Literal["refuse", "map"]
"""What `spec.data.onSchemaMismatch` may say."""

T = TypeVar("T")

JOB_OWNER = "the job"
"""Owner of what `spec.data` says itself."""

MAX_NAMES = 10
"""Names that a message quotes of a list."""

MAX_UNKNOWN = 20
"""Names of one list that have a line of their own where they are unknown or lacking."""

MAX_SEARCHED = 10_000
"""Longest list in which the nearest name is looked for, which takes its time."""


@dataclass(frozen=True)
class SchemaFault:
    """One difference between a schema and the one that it is compared with, and its remedy.

    :param place: what differs, such as `class 'plane'`.
    """

    place: str
    problem: str
    remedy: str

    @override
    def __str__(self) -> str:
        return f"{self.place} {self.problem}; {self.remedy}"


def declared_schema(data: DataSpec) -> Schema:
    """What the job itself says of the names of its data."""
    return Schema(classes=data.class_names)


def rule_of(data: DataSpec) -> MismatchRule:
    """The job's rule for differences."""
    return data.on_schema_mismatch or "refuse"


def comparable_name(name: str, rule: MismatchRule) -> str:
    """The form in which names are compared: as they are, or without case and surrounding white space."""
    return name if rule == "refuse" else name.strip().casefold()


def nearest_name(name: str, known: Sequence[str]) -> str | None:
    """The known name that is most like another, if one is."""
    if len(known) > MAX_SEARCHED:
        return None
    forms = {comparable_name(other, "map"): other for other in reversed(known)}
    near = difflib.get_close_matches(comparable_name(name, "map"), list(forms), n=1)
    return forms[near[0]] if near else None


def compare(
    data: DataSpec, announced: Mapping[str, Schema], reference: Schema | None = None
) -> dict[str, list[SchemaFault]]:
    """The differences of every owner's schema from the job's, or from the one that most of the owners have.

    :param announced: owner such as `silo default/north` -> its schema; a name of classes is the job's where it fits.
    :param reference: what to compare with in place of what most of them have.
    :returns: owners with differences only, in the given order.
    """
    rule, declared = rule_of(data), declared_schema(data)
    expected = _most_common(announced.values()) if reference is None else reference
    found = {
        owner: [*_class_faults(declared, expected, schema, rule), *_feature_faults(expected, schema, rule)]
        for owner, schema in announced.items()
    }
    return {owner: faults for owner, faults in found.items() if faults}


def _class_faults(
    declared: Schema, expected: Schema, found: Schema, rule: MismatchRule
) -> Iterator[SchemaFault]:
    if declared.classes is not None:
        yield from (
            [without_names(declared.classes)]
            if found.classes is None
            else class_faults(declared.classes, found.classes, rule)
        )
    elif expected.classes is not None and found.classes is not None:
        remedy = "list the names of all classes in spec.data.classes, where a silo may lack some"
        yield from list_faults("class", expected.classes, found.classes, rule, remedy)


def without_names(wanted: Sequence[str]) -> SchemaFault:
    """That data have no names of classes, and the job has these."""
    problem = f"have no names in these data, and the job has {comma_separated(wanted, 3)}"
    remedy = "give the names with the data (docs/data.md), or their number in spec.data.classes"
    return SchemaFault("classes", problem, remedy)


def class_faults(wanted: Sequence[str], found: Sequence[str], rule: MismatchRule) -> list[SchemaFault]:
    """Where the names of a silo's classes are not the job's; that some are lacking is none."""
    faults, names, unknown = [], dict[int, str](), list[str]()
    for name, place in zip(found, class_places(wanted, found, rule), strict=True):
        if place is None:
            unknown.append(name)
        elif place in names:
            problem = f"is {wanted[place]!r} of the job, and so is {names[place]!r}"
            faults.append(SchemaFault(f"class {name!r}", problem, "merge the two"))
        else:
            names[place] = name
    faults += [_unknown_class(name, wanted, rule) for name in unknown[:MAX_UNKNOWN]]
    faults += _omitted_names_fault("class", unknown)
    if rule == "refuse" and not faults and list(names) != sorted(names):
        faults.append(_order("classes", [wanted[place] for place in sorted(names)], found))
    return faults


def class_places(wanted: Sequence[str], found: Sequence[str], rule: MismatchRule) -> list[int | None]:
    """Where each name stands among the job's; None where it does not, or might stand for two of them."""
    exact = {name: place for place, name in enumerate(wanted)}
    counts = Counter(comparable_name(name, rule) for name in wanted)
    forms = {
        form: place
        for place, form in enumerate(comparable_name(name, rule) for name in wanted)
        if counts[form] == 1
    }
    return [exact.get(name, forms.get(comparable_name(name, rule))) for name in found]


def _unknown_class(name: str, wanted: Sequence[str], rule: MismatchRule) -> SchemaFault:
    near = nearest_name(name, wanted)
    if near is None:
        problem = f"is not a class of the job, which has {comma_separated(wanted, MAX_NAMES)}"
        return SchemaFault(f"class {name!r}", problem, "leave its examples out, or correct spec.data.classes")
    remedy = f"did you mean {near!r}? rename it, or set classAliases {{{name}: {near}}} in the dataset"
    if rule == "refuse" and comparable_name(name, "map") == comparable_name(near, "map"):
        remedy += ", or spec.data.onSchemaMismatch: map"
    return SchemaFault(f"class {name!r}", "is not a class of the job", remedy)


def _order(what: str, wanted: Sequence[str], found: Sequence[str]) -> SchemaFault:
    problem = f"are in another order: {join_names(found, MAX_NAMES)}, not {join_names(wanted, MAX_NAMES)}"
    return SchemaFault(what, problem, "put them in that order, or set spec.data.onSchemaMismatch: map")


def list_faults(
    noun: str, wanted: Sequence[str], found: Sequence[str], rule: MismatchRule, remedy: str
) -> list[SchemaFault]:
    """Where a list of names is not another one; each name of either counts, and so does the order.

    :param remedy: for a name that is lacking, and for another order.
    """
    if any(len({comparable_name(name, rule) for name in names}) < len(names) for names in (wanted, found)):
        rule = "refuse"  # names that differ in case only would pass for one another
    have = {comparable_name(name, rule) for name in found}
    wish = {comparable_name(name, rule): name for name in wanted}
    lacking = [name for form, name in wish.items() if form not in have]
    unknown = [name for name in found if comparable_name(name, rule) not in wish]
    faults = []
    for name in unknown[:MAX_UNKNOWN]:
        near = nearest_name(name, lacking)
        if near is not None:
            lacking.remove(near)
        advice = "remove it" if near is None else f"did you mean {near!r}? rename it"
        if near is not None and noun == "class":
            advice += f", or set classAliases {{{name}: {near}}} in the dataset"
        faults.append(SchemaFault(f"{noun} {name!r}", "is in these data alone", advice))
    faults += _omitted_names_fault(noun, unknown)
    faults += [SchemaFault(f"{noun} {name!r}", "is lacking", remedy) for name in lacking[:MAX_UNKNOWN]]
    faults += _omitted_names_fault(noun, lacking)
    if not faults and [comparable_name(name, rule) for name in found] != [
        comparable_name(name, rule) for name in wanted
    ]:
        problem = f"is in another order: {join_names(found, MAX_NAMES)}, not {join_names(wanted, MAX_NAMES)}"
        faults.append(SchemaFault(f"the list of {noun} names", problem, remedy))
    return faults


def _omitted_names_fault(noun: str, names: Sequence[str]) -> list[SchemaFault]:
    """One more fault for names that have none of their own."""
    more = len(names) - MAX_UNKNOWN
    return [SchemaFault(f"{more} more {noun} names", "differ", "correct these first")] if more > 0 else []


def _feature_faults(expected: Schema, found: Schema, rule: MismatchRule) -> Iterator[SchemaFault]:
    if expected.columns is not None and found.columns is not None:
        yield from column_faults(expected.columns, found.columns, rule)
    if expected.target is not None and found.target is not None:
        names = [expected.target.name], [found.target.name]
        renamed = list_faults("target", *names, rule, "name the same column as the others")
        yield from renamed or _of_column("target", expected.target, found.target, rule)
    if expected.channels is not None and found.channels not in (None, expected.channels):
        problem = f"are {found.channels}, and the others have {expected.channels}"
        yield SchemaFault("channels", problem, "convert the images")
    if expected.value_range is not None and found.value_range not in (None, expected.value_range):
        problem = f"are from {found.value_range}, and those of the others from {expected.value_range}"
        yield SchemaFault("values", problem, "scale them alike; uint8 counts as 0 to 1")


def column_faults(
    wanted: Sequence[TableColumn], found: Sequence[TableColumn], rule: MismatchRule
) -> Iterator[SchemaFault]:
    """Where the columns of a table are not those of another: names, order, types, categories."""
    names = [column.name for column in wanted], [column.name for column in found]
    yield from list_faults("column", *names, rule, "give the same columns in the same order")
    exact = {column.name: column for column in wanted}
    known = {comparable_name(column.name, rule): column for column in wanted}
    for column in found:
        other = exact.get(column.name) or known.get(comparable_name(column.name, rule))
        if other is not None:
            yield from _of_column("column", other, column, rule)


def _of_column(
    noun: str, wanted: TableColumn, found: TableColumn, rule: MismatchRule
) -> Iterator[SchemaFault]:
    if found.type != wanted.type:
        problem = f"is of type {found.type}, and the others have type {wanted.type}"
        yield SchemaFault(f"{noun} {found.name!r}", problem, f"convert it to {wanted.type}")
    elif found.categories is not None and wanted.categories is not None:
        remedy = "give the same categories in the same order"
        for fault in list_faults("category", wanted.categories, found.categories, rule, remedy):
            yield replace(fault, place=f"{noun} {found.name!r}: {fault.place}")


def _most_common(schemata: Iterable[Schema]) -> Schema:
    """Schema that most schemata agree on, each part by a vote of those that know it; of a tie, the first wins."""
    known = list(schemata)

    def commonest(part: Callable[[Schema], T | None]) -> T | None:
        counted = Counter(value for schema in known if (value := part(schema)) is not None)
        return counted.most_common(1)[0][0] if counted else None

    return Schema(
        classes=commonest(lambda schema: schema.classes),
        columns=commonest(lambda schema: schema.columns),
        target=commonest(lambda schema: schema.target),
        channels=commonest(lambda schema: schema.channels),
        value_range=commonest(lambda schema: schema.value_range),
    )


def mismatch_text(faults: Mapping[str, Sequence[SchemaFault]]) -> str:
    """All faults of all owners in one message."""
    return ". ".join(f"{owner}: {'. '.join(map(str, found))}" for owner, found in faults.items())
