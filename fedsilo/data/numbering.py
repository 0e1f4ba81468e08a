"""From a class's name in the data to its label in the job: by name wherever both have names."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsilo.api.class_names import name_problem
from fedsilo.api.data import DataSpec
from fedsilo.api.text import comma_separated
from fedsilo.data.comparison import (
    SchemaFault,
    class_faults,
    class_places,
    declared_schema,
    nearest_name,
    rule_of,
    without_names,
)
from fedsilo.data.schema import Schema
from fedsilo.errors import DataInvalid, quoted_value


class SchemaMismatch(DataInvalid):
    """Data whose names are not the job's.

    :ivar schema: what the silo announces all the same, so that the job's failure names the faults of all silos.
    """

    def __init__(self, schema: Schema, faults: Sequence[SchemaFault]) -> None:
        super().__init__(". ".join(map(str, faults)))
        self.schema = schema

    def with_dataset(self, dataset: str) -> SchemaMismatch:
        """This mismatch with the name of the dataset in front of its message."""
        named = SchemaMismatch(self.schema, ())
        named.args = (f"dataset {dataset!r}: {self}",)
        return named


@dataclass(frozen=True)
class Numbering:
    """The labels of a dataset's classes.

    :param labels: label in the job of each class, by its number in the data, shape (classes,), int64.
    :param classes: names that the silo announces, in the order of the labels.
    """

    labels: np.ndarray
    classes: tuple[str, ...]


def number_classes(
    names: Sequence[str], data: DataSpec, aliases: Mapping[str, str] | None, *, ordered: bool
) -> Numbering:
    """Labels for the classes of a dataset that have names.

    :param names: in the data, by their number there, each once.
    :param aliases: name in the data -> name in jobs, as the institution says.
    :param ordered: whether the order of the names is the data's own, so that another one is a difference. Folders and
        the values of a column have none: they are numbered in the job's order, or else by name.
    :raises SchemaMismatch: when they are not the job's.
    :raises DataInvalid: for names that cannot be some, and a number of them that is not the job's.
    """
    own = _renamed_classes(_checked_names(names), aliases or {})
    wanted, rule = data.class_names, rule_of(data)
    distinct = list(dict.fromkeys(own))
    if wanted is None:
        if not ordered:
            distinct.sort()
            _require_all(distinct, data.class_count)
        elif len(distinct) < len(own):
            raise DataInvalid(
                f"classes {quoted_value(comma_separated(names))}: two have the same name; give each its own"
            )
        places = {name: place for place, name in enumerate(distinct)}
        return Numbering(np.array([places[name] for name in own], dtype=np.int64), tuple(distinct))
    if not ordered:
        found = class_places(wanted, distinct, rule)
        distinct = [
            name
            for _, name in sorted(zip([_place_sort_key(place) for place in found], distinct, strict=True))
        ]
    if faults := class_faults(wanted, distinct, rule):
        raise SchemaMismatch(Schema(classes=tuple(distinct)), faults)
    labels = [place for place in class_places(wanted, own, rule) if place is not None]
    # What fits is announced as the job's own list: nobody learns which of the classes a silo lacks.
    return Numbering(np.array(labels, dtype=np.int64), wanted)


def refuse_without_names(data: DataSpec) -> None:
    """Refuse data without names of classes where the job has them.

    :raises SchemaMismatch: for such a job.
    """
    wanted = declared_schema(data).classes
    if wanted is not None:
        raise SchemaMismatch(Schema(), [without_names(wanted)])


def _checked_names(names: Sequence[str]) -> list[str]:
    """Names in the composed form of Unicode, in which file systems do not always keep them.

    :raises DataInvalid: naming one that cannot be a name.
    """
    composed = [unicodedata.normalize("NFC", name) for name in names]
    for name in composed:
        if (found := name_problem(name)) is not None:
            raise DataInvalid(f"class {quoted_value(repr(name[:100]))} {found[0]}; {found[1]}")
    return composed


def _renamed_classes(names: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    for alias in aliases:
        if alias not in names:
            near = nearest_name(alias, names)
            remedy = f"did you mean {near!r}?" if near else f"use one of {comma_separated(names)}"
            raise DataInvalid(f"classAliases: {alias!r} is no class of these data; {quoted_value(remedy)}")
    return [aliases.get(name, name) for name in names]


def _require_all(names: Sequence[str], count: int) -> None:
    if len(names) != count:
        raise DataInvalid(
            f"there are {len(names)} classes ({quoted_value(comma_separated(names))}), but data.classes of the job is"
            f" {count}; list the names of all classes in spec.data.classes, where a silo may lack some"
        )


def _place_sort_key(place: int | None) -> int:
    return place if place is not None else 1 << 62
