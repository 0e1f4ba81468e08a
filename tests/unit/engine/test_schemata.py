"""Thirty wrong arrangements of names over four silos and a test set: none is trained on with shifted labels.

The shade of every image says what it really shows, whatever it is called and whatever label it gets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.engine.schemata import TEST_SET, SchemaStore
from fedsilo.errors import FileDamaged
from fedsilo.wire import Contract

NAMES = ("airplane", "bird", "cat")
SILOS = ("north", "south", "east", "west")
TEST = "test"
RIGHT = {name: name for name in NAMES}
"""Name in the data -> what it really is; its order is that of the labels where they have one."""

PLANE = {"plane": "airplane", "bird": "bird", "cat": "cat"}
CASE = {"Airplane": "airplane", "BIRD": "bird", "cat": "cat"}
SORTED_CASE = {"airplane": "airplane", "Bird": "bird", "cat": "cat"}
SPACE = {" airplane": "airplane", "bird ": "bird", "cat": "cat"}
TYPO = {"airplane": "airplane", "brid": "bird", "cat": "cat"}
SUBSET = {"airplane": "airplane", "cat": "cat"}
SUPERSET = {**RIGHT, "dog": "dog"}
SHUFFLE = {"cat": "cat", "airplane": "airplane", "bird": "bird"}
FOREIGN_CLASSES = {"tulip": "tulip", "rose": "rose", "oak": "oak"}
TWINS = {**RIGHT, "Bird": "bird"}
SHADES = {name: 20 * place + 10 for place, name in enumerate((*NAMES, "dog", "tulip", "rose", "oak"))}

Data = tuple[str, Mapping[str, str] | Sequence[str]]
"""Loader, and the names in the data; or what the classes 0, 1, 2 really are, where they have no names."""


def folder(**changed: Mapping[str, str]) -> dict[str, Data]:
    """Image folders, right but for some."""
    return {owner: ("imagefolder", changed.get(owner, RIGHT)) for owner in (*SILOS, TEST)}


def npz(**changed: Mapping[str, str] | Sequence[str]) -> dict[str, Data]:
    """Archives, right but for some; a list is of one without names."""
    return {owner: ("npz", changed.get(owner, RIGHT)) for owner in (*SILOS, TEST)}


ARRANGEMENTS: list[tuple[str, object, str | None, dict[str, Data], Sequence[str]]] = [
    # what, classes of the job, rule, data, what the failure says: nothing where all is mapped
    ("plane in one folder", NAMES, None, folder(east=PLANE), ["east: class 'plane'", "did you mean 'airplane'"]),
    ("plane, by number", 3, None, folder(east=PLANE), ["east: class 'plane'", "did you mean 'airplane'"]),
    ("plane in every folder but one", NAMES, None, folder(north=PLANE, south=PLANE, east=PLANE),
     ["north: class 'plane'", "south: class 'plane'", "east: class 'plane'"]),
    ("plane in every folder but one, by number", 3, None, folder(north=PLANE, south=PLANE, east=PLANE),
     ["west: class 'airplane'", "did you mean 'plane'", f"{TEST_SET}: class 'airplane'"]),
    ("plane in the test set", NAMES, None, folder(test=PLANE), [f"{TEST_SET}: class 'plane'"]),
    ("plane in the test set, by number", 3, None, folder(test=PLANE), [f"{TEST_SET}: class 'plane'"]),
    ("plane is not mapped by itself", NAMES, "map", folder(west=PLANE), ["west: class 'plane'"]),
    ("case in a folder", NAMES, None, folder(north=CASE), ["north: class 'Airplane'", "class 'BIRD'", "Mismatch: map"]),
    ("case in a folder, mapped", NAMES, "map", folder(north=CASE), []),
    ("case in a folder, by number", 3, None, folder(north=CASE), ["north: class 'Airplane'", "class 'BIRD'"]),
    ("case in a folder, by number, mapped", 3, "map", folder(north=CASE), []),
    ("case that sorts otherwise, mapped", 3, "map", folder(north=SORTED_CASE), ["north: the list of class names"]),
    ("case in an archive, mapped", NAMES, "map", npz(south=CASE), []),
    ("case in an archive", NAMES, None, npz(south=CASE), ["south: class 'Airplane'"]),
    ("white space", NAMES, None, npz(west=SPACE), ["west: class ' airplane'", "class 'bird '"]),
    ("white space, mapped", NAMES, "map", npz(west=SPACE), []),
    ("a typing error", NAMES, None, folder(east=TYPO), ["east: class 'brid'", "did you mean 'bird'"]),
    ("a typing error, mapped", NAMES, "map", npz(east=TYPO), ["east: class 'brid'"]),
    ("two typing errors", NAMES, None, folder(east=TYPO, west=PLANE), ["east: class 'brid'", "west: class 'plane'"]),
    ("a class that is lacking", NAMES, None, folder(south=SUBSET), []),
    ("a class that is lacking, in an archive", NAMES, None, npz(south=SUBSET), []),
    ("a class that is lacking, by number", 3, None, npz(south=SUBSET), ["south: class 'bird' is lacking"]),
    ("an additional class", NAMES, None, folder(south=SUPERSET), ["south: class 'dog' is not a class of the job"]),
    ("an additional class, mapped", NAMES, "map", npz(south=SUPERSET), ["south: class 'dog'"]),
    ("another order", NAMES, None, npz(west=SHUFFLE), ["west: classes are in another order: cat, airplane and bird"]),
    ("another order, mapped", NAMES, "map", npz(west=SHUFFLE), []),
    ("another order, by number", 3, "map", npz(west=SHUFFLE), ["west: the list of class names is in another order"]),
    ("another order of the test set", NAMES, None, npz(test=SHUFFLE), [f"{TEST_SET}: classes are in another order"]),
    ("another order in the job", NAMES[::-1], None, folder(), []),
    ("numbers against names", NAMES, None, npz(north=list(SHUFFLE)), ["north: classes have no names in these data"]),
    ("numbers against names, mapped", NAMES, "map", npz(north=list(NAMES)), ["north: classes have no names in these"]),
    ("a test set of numbers", NAMES, None, npz(test=list(NAMES)), [f"{TEST_SET}: classes have no names"]),
    ("other things altogether", NAMES, None, folder(west=FOREIGN_CLASSES), ["west: class 'oak'", "'rose'", "'tulip'"]),
    ("the same twice", NAMES, "map", npz(east=TWINS), ["east: class 'Bird' is 'bird' of the job, and so is 'bird'"]),
    ("every fault at once", NAMES, None, npz(north=PLANE, south=SUPERSET, east=SHUFFLE, west=list(NAMES), test=TYPO),
     ["north: class 'plane'", "south: class 'dog'", "east: classes are in another", "west: classes have", "'brid'"]),
]  # fmt: skip


def write_dataset(root: Path, owner: str, data: Data) -> DatasetSpec:
    """A dataset of one image for each class, whose shade says what it is."""
    loader, names = data
    real = list(names.values()) if isinstance(names, Mapping) else list(names)
    shades = np.array([SHADES[name] for name in real], dtype=np.uint8)
    if loader == "npz":
        called = {"classes": np.array(list(names))} if isinstance(names, Mapping) else {}
        images = np.broadcast_to(shades[:, None, None], (len(real), 2, 2))
        np.savez(root / f"{owner}.npz", images=images, labels=np.arange(len(real)), **called)  # type: ignore[arg-type]
        return DatasetSpec(name="scans", loader="npz", config={"path": f"{owner}.npz"})
    for name, shade in zip(names, shades, strict=True):
        (root / owner / name).mkdir(parents=True)
        Image.new("L", (2, 2), int(shade)).save(root / owner / name / "1.png")
    return DatasetSpec(name="scans", loader="imagefolder", config={"path": owner})


def announced_schema(root: Path, owner: str, data: Data, job: DataSpec) -> tuple[Schema, dict[int, int]]:
    """What an owner announces, and label -> shade of what it would train on."""
    try:
        found = load(write_dataset(root, owner, data), job, root=root)
    except SchemaMismatch as mismatch:
        return mismatch.schema, {}
    pairs = zip(found.labels, found.features, strict=True)
    return found.schema, {int(label): int(image.max()) for label, image in pairs}


@pytest.mark.parametrize(
    ("classes", "rule", "arrangement", "said"),
    [case[1:] for case in ARRANGEMENTS],
    ids=[case[0] for case in ARRANGEMENTS],
)
def test_no_arrangement_is_trained_on_with_shifted_labels(
    tmp_path: Path, classes: Any, rule: str | None, arrangement: dict[str, Data], said: Sequence[str]
) -> None:
    job = DataSpec.model_validate(
        {"dataset": "scans", "classes": classes, "inputShape": [1, 2, 2], "onSchemaMismatch": rule}
    )
    found = {owner: announced_schema(tmp_path, owner, data, job) for owner, data in arrangement.items()}
    schemata = SchemaStore(tmp_path / "schemata.json", job, found[TEST][0])
    for silo in SILOS:
        schemata.announce(silo, found[silo][0])
    failure = schemata.failure()
    if failure is None:
        assert not said
        for owner, (_, labels) in found.items():
            names = job.class_names or NAMES
            assert labels, owner
            assert {label: SHADES[names[label]] for label in labels} == labels, owner
    else:
        assert said, str(failure)
        assert failure.reason == "DataInvalid"
        for part in said:
            assert part in str(failure)
        faulty = set(re.findall(rf"(?:silo (\w+)|{TEST_SET}):", str(failure)))
        assert faulty == {silo for silo in SILOS if any(part.startswith(silo) for part in said)} | (
            {""} if f"{TEST_SET}:" in str(failure) else set()
        )


def test_there_are_thirty_of_them() -> None:
    assert len({case[0] for case in ARRANGEMENTS}) == len(ARRANGEMENTS) >= 30


def table(*names: str, **changed: Any) -> Schema:
    """A table of numbers."""
    return Schema(columns=tuple(TableColumn(name, changed.get(name, "number")) for name in names))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (table("aeg", "dose"), "column 'aeg'"),
        (table("dose", "age"), "the list of column names is in another order"),
        (table("age"), "column 'dose' is lacking"),
        (table("age", "dose", "name"), "column 'name' is in these data alone"),
        (table("Age", "dose"), "did you mean 'age'?"),
        (table("age", "dose", dose="text"), "column 'dose' is of type text"),
    ],
)
def test_columns_are_compared_before_a_silo_begins(tmp_path: Path, wrong: Schema, said: str) -> None:
    job = DataSpec(dataset="table", classes=2, input_shape=(2,))
    for place, owner in enumerate((*SILOS, TEST)):
        schemata = SchemaStore(
            tmp_path / f"{owner}.json", job, wrong if owner == TEST else table("age", "dose")
        )
        for silo in SILOS:
            schemata.announce(silo, wrong if silo == owner else table("age", "dose"))
        failure = schemata.failure()
        assert failure is not None, place
        assert (f"silo {owner}: " if owner != TEST else f"{TEST_SET}: ") in str(failure)
        assert said in str(failure)


JOB = DataSpec(dataset="scans", classes=3, input_shape=(1,))
NAMED_CLASSES_SPEC = DataSpec(dataset="scans", classes=NAMES, input_shape=(1,))
GOOD_SCHEMA, BAD_SCHEMA = Schema(classes=NAMES), Schema(classes=("bird", "cat", "plane"))


def test_what_was_announced_outlives_a_restart_and_is_forgotten_on_resuming(tmp_path: Path) -> None:
    path = tmp_path / "schemata.json"
    first = SchemaStore(path, JOB, None)
    assert first.classes is None
    first.announce("north", GOOD_SCHEMA)
    first.announce("south", GOOD_SCHEMA)
    again = SchemaStore(path, JOB, None)
    assert (set(again.silos), again.classes, again.failure()) == ({"north", "south"}, NAMES, None)
    again.announce("east", BAD_SCHEMA)
    assert again.failure() is not None
    again.announce("east", GOOD_SCHEMA)  # mended, and its trainer started again
    assert again.failure() is None
    again.forget()
    assert not SchemaStore(path, JOB, None).silos
    path.write_text('{"schemata": {"a": {"clases": []}}, "silos": {}}')
    with pytest.raises(
        FileDamaged, match="remove it: silos announce theirs when their guards are started again"
    ):
        SchemaStore(path, JOB, None)


def test_who_waits_for_whom(tmp_path: Path) -> None:
    """For others that can tell that its names are wrong, or whose faults a message is to name too."""
    here, all_here, nobody = {"north"}, {"north", "south"}, set[str]()
    number = SchemaStore(tmp_path / "number.json", JOB, None)
    number.announce("north", GOOD_SCHEMA)
    assert number.waits({"south"}, all_here, 600.0, 29.9)
    assert not number.waits({"south"}, all_here, 600.0, 30.0)
    assert not number.waits({"south"}, all_here, 100.0, 10.0)
    assert number.waits({"south"}, here, 600.0, 9.9)
    assert not number.waits({"south"}, here, 600.0, 10.0)
    assert not number.waits({"south"}, here, 20.0, 1.0)
    assert not number.waits(nobody, all_here, 600.0, 0.0)
    named = SchemaStore(tmp_path / "named.json", NAMED_CLASSES_SPEC, None)
    named.announce("north", GOOD_SCHEMA)
    assert not named.waits({"south"}, all_here, 600.0, 0.0)
    named.announce("north", BAD_SCHEMA)
    assert named.waits({"south"}, all_here, 600.0, 29.9)
    assert named.waits({"south"}, here, 600.0, 9.9)
    assert not named.waits({"south"}, here, 600.0, 10.0)
    nameless = SchemaStore(tmp_path / "nameless.json", JOB, None)
    nameless.announce("north", Schema(channels=1))
    assert not nameless.waits({"south"}, all_here, 600.0, 0.0)


def test_only_names_of_the_job_are_part_of_the_contract() -> None:
    plain = Contract((), ("accuracy",))
    named = Contract((), ("accuracy",), schema=GOOD_SCHEMA.digest())
    assert plain.digest() != named.digest()
    assert plain.digest() == Contract((), ("accuracy",), schema=None).digest()
    assert named.digest() != Contract((), ("accuracy",), schema=BAD_SCHEMA.digest()).digest()
