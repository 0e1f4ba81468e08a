"""What the API server says of each bad object, and that it takes the good ones as they are meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import load
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.schema.objects import BAD_OBJECTS, GOOD_OBJECTS
from tests.paths import ROOT

_BLOCKS = Path(__file__).with_name("schema.golden").read_text().split("# ")[1:]
GOLDEN = {name: text.strip() for name, _, text in (block.partition("\n") for block in _BLOCKS)}

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

# What is wrong between documents: the API server sees one object at a time, the operator sees all. Nor do its
# expressions know the forms of Unicode.
SEEN_BY_OPERATOR = {
    "class in decomposed Unicode",
    "affinity that compares with nothing",
    "selector that matches nothing",
    "selector of too few silos",
    "reference without a Silo",
    "reference into another namespace",
    "two Silos of one name",
    "silo without the dataset",
}


def answer(api: Kubectl, text: str) -> str:
    """What a person reads who applies a file; the faults of an object in order, since the API server has none."""
    try:
        api.run("apply", "--dry-run=server", "-f", "-", stdin=text)
    except KubectlError as failed:
        _, _, said = str(failed).partition(": ")
        head, *faults = [line.rstrip() for line in said.splitlines() if not line.startswith("Warning:")]
        return "\n".join([head, *sorted(faults)])
    return "accepted"


def test_golden_file_has_just_the_cases() -> None:
    assert list(GOLDEN) == list(BAD_OBJECTS)
    assert {name for name, said in GOLDEN.items() if said == "accepted"} == SEEN_BY_OPERATOR


@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_bad_object(api: Kubectl, name: str) -> None:
    assert answer(api, BAD_OBJECTS[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", GOOD_OBJECTS)
def test_good_object(api: Kubectl, name: str) -> None:
    assert answer(api, GOOD_OBJECTS[name]) == "accepted"
    api.run("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=GOOD_OBJECTS[name])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(api: Kubectl, example: Path) -> None:
    assert answer(api, example.read_text()) == "accepted"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_api_server_does_not_change_what_a_job_is(api: Kubectl, example: Path) -> None:
    """An API server fills in defaults and writes numbers its own way; the digest that messages are bound to stays."""
    (text,) = (part for part in example.read_text().split("\n---\n") if "\nkind: FederatedJob\n" in part)
    taken = json.loads(api.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=text))
    assert taken["spec"]["participation"]["roundDeadline"]
    assert spec_digest(FederatedJob.model_validate(taken)) == spec_digest(load(example).job)
