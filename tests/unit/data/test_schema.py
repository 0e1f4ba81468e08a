"""What schemata of datasets say, how they are read, and where two of them differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedsilo.api.data import DataSpec
from fedsilo.data.comparison import class_places, column_faults, compare, mismatch_text
from fedsilo.data.numbering import SchemaMismatch, number_classes
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.data.schema import TableColumn as Col
from fedsilo.errors import DataInvalid

SCHEMA = Schema(
    classes=("ill", "well"),
    columns=(
        Col("age", "number"),
        Col("sex", "category", ("f", "m")),
        Col("note", "text"),
    ),
    target=Col("outcome", "category", ("ill", "well")),
    channels=3,
    value_range="0 to 1",
)
PETS = ["cat", "dog", "parrot"]


def data(classes: object = 3, rule: str | None = None) -> DataSpec:
    return DataSpec.model_validate(
        {"dataset": "pets", "classes": classes, "inputShape": [1], "onSchemaMismatch": rule}
    )


def text(spec: DataSpec, **announced: Schema) -> str:
    return mismatch_text(compare(spec, announced))


@pytest.mark.parametrize("schema", [SCHEMA, Schema(), Schema(classes=("é", "ß x"))])
def test_a_schema_is_read_as_it_was_written(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json()) == schema
    assert Schema.from_json(json.dumps(schema.to_dict(), indent=1).encode()).digest() == schema.digest()


def test_what_is_unknown_is_left_out() -> None:
    assert Schema().to_json() == b"{}"
    assert Schema(channels=3).to_json() == b'{"channels":3}'


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "schema: '[]' is not an object with any of classes, columns, target, channels, valueRange"),
        ({"clases": []}, "schema: \"{'clases': []}\" is not an object"),
        ({"classes": "cat"}, "schema: classes: 'cat' is not a list of at most 100000 names"),
        ({"classes": ["a", 3]}, "schema: classes: '3' is not text"),
        ({"classes": ["a", "a"]}, "schema: classes: 'a' is there twice"),
        ({"classes": ["a\n", "b"]}, "schema: classes: 'a\\n' has a control character"),
        ({"columns": [{"name": "age"}]}, "schema: columns[0]: \"{'name': 'age'}\" is not an object with name, type"),
        ({"columns": [{"name": "age", "type": "date"}]}, "columns[0]: type: 'date' is not one of number, category"),
        ({"channels": True}, "schema: channels: 'True' is not an integer"),
        ({"valueRange": "0 to 3"}, "schema: valueRange: '0 to 3' is not one of 0 to 1, -1 to 1, 0 to 255"),
        ({"classes": [f"{'x' * 90}{n}" for n in range(20_000)]}, f"{MAX_SCHEMA_BYTES} is the most"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(DataInvalid) as refused:
        Schema.from_json(json.dumps(value).encode())
    assert problem in str(refused.value)
    with pytest.raises(DataInvalid, match="is no JSON"):
        Schema.from_json(b"[" * 100_000)


@pytest.mark.parametrize(
    ("names", "rule", "ordered", "labels"),
    [
        (["cat", "dog", "parrot"], None, True, [0, 1, 2]),
        (["parrot", "cat"], None, False, [2, 0]),
        (["dog", "parrot"], None, True, [1, 2]),
        (["Parrot", " cat"], "map", True, [2, 0]),
        (["parrot", "dog", "cat"], "map", True, [2, 1, 0]),
    ],
)
def test_names_decide_the_labels(
    names: list[str], rule: str | None, ordered: bool, labels: list[int]
) -> None:
    found = number_classes(names, data(PETS, rule), None, ordered=ordered)
    assert found.labels.tolist() == labels
    assert found.classes == tuple(PETS)  # whichever classes these data lack


@pytest.mark.parametrize(
    ("names", "rule", "fault"),
    [
        (["cat", "dgo"], None, "class 'dgo' is not a class of the job; did you mean 'dog'? rename it, or set "
                               "classAliases {dgo: dog} in the dataset"),
        (["Cat", "dog"], None, "did you mean 'cat'? rename it, or set classAliases {Cat: cat} in the dataset, or "
                               "spec.data.onSchemaMismatch: map"),
        (["cat", "zebu"], "map", "class 'zebu' is not a class of the job, which has cat, dog, parrot; leave its "
                                 "examples out, or correct spec.data.classes"),
        (["dog", "cat"], None, "classes are in another order: dog and cat, not cat and dog; put them in that order, "
                               "or set spec.data.onSchemaMismatch: map"),
        (["Cat", "cat"], "map", "class 'cat' is 'cat' of the job, and so is 'Cat'; merge the two"),
    ],
)  # fmt: skip
def test_other_names_are_refused(names: list[str], rule: str | None, fault: str) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        number_classes(names, data(PETS, rule), None, ordered=True)
    assert fault in str(refused.value)
    assert refused.value.schema == Schema(classes=tuple(names))


def test_only_the_institution_says_that_two_names_are_one() -> None:
    aliases = {"kitten": "cat", "puppy": "dog"}
    found = number_classes(["puppy", "cat", "kitten"], data(PETS), aliases, ordered=False)
    assert found.labels.tolist() == [1, 0, 0]
    with pytest.raises(
        DataInvalid, match="classAliases: 'kiten' is no class of these data; did you mean 'kit"
    ):
        number_classes(["kitten"], data(PETS), {"kiten": "cat"}, ordered=False)


def test_names_without_an_order_are_numbered_by_name_where_the_job_has_none() -> None:
    found = number_classes(["b", "a", "z"], data(3), {"z": "aa"}, ordered=False)
    assert (found.labels.tolist(), found.classes) == ([2, 0, 1], ("a", "aa", "b"))
    assert number_classes(["b", "a"], data(3), None, ordered=True).labels.tolist() == [0, 1]
    with pytest.raises(
        DataInvalid, match=r"there are 2 classes .a, b., but data.classes of the job is 3; list"
    ):
        number_classes(["b", "a"], data(3), None, ordered=False)


def test_names_are_composed_and_must_be_names() -> None:
    assert number_classes(
        ["cafe\u0301", "tea"], data(["caf\u00e9", "tea"]), None, ordered=True
    ).labels.tolist() == [0, 1]
    with pytest.raises(DataInvalid, match="has a control character, or one that is no character"):
        number_classes(["caf\udce9", "tea"], data(2), None, ordered=False)


def test_all_faults_of_all_owners_are_named() -> None:
    announced = {
        "silo north": Schema(classes=("cat", "dog", "parrot")),
        "silo south": Schema(classes=("cat", "dgo", "zebu")),
        "silo west": Schema(),
        "the test set": Schema(classes=("dog", "cat")),
    }
    found = mismatch_text(compare(data(PETS), announced))
    assert found.startswith("silo south: class 'dgo' is not a class of the job; did you mean 'dog'?")
    for part in (
        "class 'zebu'",
        "silo west: classes have no names in these data",
        "the test set: classes are in ano",
    ):
        assert part in found
    assert "north" not in found


def test_where_the_job_has_a_number_names_must_agree() -> None:
    three, other = Schema(classes=("cat", "dog", "parrot")), Schema(classes=("cat", "dog", "parot"))
    assert text(data(3), a=three, b=Schema(), c=three) == ""
    assert text(data(3), a=other, b=three, c=three) == (
        "a: class 'parot' is in these data alone; did you mean 'parrot'? rename it, or set classAliases "
        "{parot: parrot} in the dataset"
    )
    less, turned = Schema(classes=("cat", "dog")), Schema(classes=("dog", "cat", "parrot"))
    found = text(data(3), a=three, b=less, c=three, d=turned)
    assert "b: class 'parrot' is lacking; list the names of all classes in spec.data.classes" in found
    assert (
        "d: the list of class names is in another order: dog, cat and parrot, not cat, dog and parrot"
        in found
    )
    upper = Schema(classes=("Cat", "dog", "parrot"))
    assert "did you mean 'cat'" in text(data(3), a=three, b=three, c=upper)
    assert text(data(3, "map"), a=three, b=three, c=upper) == ""
    assert "is in another order" in text(data(3, "map"), a=three, b=three, c=turned)  # nothing to map it to


def column(name: str, /, **changed: Any) -> tuple[Col, ...]:
    """The columns of `FULL`, with one of them changed."""
    return tuple(
        Col(**(vars(known) | changed)) if known.name == name else known for known in SCHEMA.columns or ()
    )


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"columns": column("age", name="aeg")}, "column 'aeg' is in these data alone; did you mean 'age'? rename it"),
        ({"columns": (SCHEMA.columns or ())[:2]}, "column 'note' is lacking; give the same columns in the same order"),
        ({"columns": (*(SCHEMA.columns or ()), Col("x", "number"))}, "column 'x' is in these data alone; remove it"),
        ({"columns": (SCHEMA.columns or ())[::-1]}, "the list of column names is in another order: note, sex and age"),
        ({"columns": column("age", name="Age")}, "column 'Age' is in these data alone; did you mean 'age'? rename it"),
        ({"columns": column("age", type="text")}, "column 'age' is of type text, and the others have type number; "
                                                  "convert it to number"),
        ({"columns": column("sex", categories=("f", "x"))}, "column 'sex': category 'x' is in these data alone"),
        ({"columns": column("sex", categories=("m", "f"))}, "column 'sex': the list of category names is in another"),
        ({"target": Col("outcom", "category")}, "target 'outcom' is in these data alone; did you mean 'outcome'?"),
        ({"target": Col("outcome", "number")}, "target 'outcome' is of type number, and the others have type cat"),
        ({"channels": 1}, "channels are 1, and the others have 3; convert the images"),
        ({"value_range": "0 to 255"}, "values are from 0 to 255, and those of the others from 0 to 1; scale them"),
    ],
)  # fmt: skip
def test_tables_and_images_are_compared_too(changed: dict[str, Any], fault: str) -> None:
    other = Schema(**(vars(SCHEMA) | changed))
    found = compare(data(2), {"a": SCHEMA, "b": other, "c": SCHEMA})
    assert list(found) == ["b"]
    assert fault in mismatch_text(found)


def test_case_and_white_space_of_columns_may_be_mapped() -> None:
    other = Schema(columns=column("age", name=" AGE"))
    assert compare(data(2, "map"), {"a": SCHEMA, "b": other}) == {}


def test_long_lists_have_short_messages() -> None:
    names, others = tuple(f"c{n}" for n in range(20_000)), tuple(f"d{n}" for n in range(20_000))
    found = text(data(20_000), a=Schema(classes=names), b=Schema(classes=others), c=Schema(classes=names))
    assert "19980 more class names differ" in found
    assert len(found) < 5000


def test_names_that_differ_in_case_only_do_not_stand_for_one_another() -> None:
    assert class_places(("Cat", "cat", "dog"), ("CAT", "cat", "DOG"), "map") == [None, 1, 2]
    twins = (Col("age", "number"), Col("Age", "category", ("f", "m")))
    assert not list(column_faults(twins, twins, "map"))
    assert [fault.place for fault in column_faults(twins, twins[::-1], "map")] == ["the list of column names"]
