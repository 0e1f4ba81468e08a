"""Every fault that a person can make, and the exact line that he reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedsilo.api import json_yaml
from fedsilo.api.common import MAX_SILOS
from fedsilo.api.documents import read_documents
from fedsilo.api.faults import MAX_FAULTS
from fedsilo.api.loading import ManifestFaults, load, parse_manifest
from fedsilo.errors import ManifestInvalid
from fedsilo.validation import validate
from tests.unit.api.bad_manifests import CASES, JOB
from tests.unit.api.manifests import DIGITS, edited_manifest

_BLOCKS = Path(__file__).with_name("bad.golden").read_text().split("# ")[1:]
GOLDEN = {name: text.strip() for name, _, text in (block.partition("\n") for block in _BLOCKS)}


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def faults_in(content: str | bytes) -> str:
    Path("bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ManifestFaults) as caught:
        load(Path("bad.yaml"))
    assert str(caught.value) == "\n".join(fault.line() for fault in caught.value.faults)
    return str(caught.value)


def test_golden_file_has_just_the_cases() -> None:
    assert list(GOLDEN) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_bad_manifest(name: str) -> None:
    assert faults_in(edited_manifest(CASES[name])) == GOLDEN[name]


@pytest.mark.parametrize("name", CASES)
def test_no_line_speaks_pydantic(name: str) -> None:
    line = GOLDEN[name]
    for jargon in ("Input should", "pydantic", "http://errors", "https://errors", "type=", "(type", "ctx"):
        assert jargon not in line


def test_missing_file() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        load(Path("absent.yaml"))
    assert str(caught.value) == "absent.yaml: does not exist; check the name of the file"
    assert caught.value.exit_code == 2


def test_directory() -> None:
    with pytest.raises(ManifestFaults, match=r"^\.: cannot be read \(Is a directory\); name a file"):
        load(Path())


def test_not_utf8() -> None:
    content = "# three silo\xdf".encode("latin-1")
    assert faults_in(content) == "bad.yaml: is not UTF-8 (byte 12); save the file as UTF-8"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n"])
def test_empty_file(text: str) -> None:
    assert faults_in(text) == "bad.yaml: is empty; write one FederatedJob and its Silos"


def test_no_job() -> None:
    assert faults_in(DIGITS[: DIGITS.rindex("---")]) == "bad.yaml: holds no FederatedJob; add one"


def test_two_jobs() -> None:
    job = DIGITS[DIGITS.rindex("---") :]
    assert faults_in(DIGITS + job) == (
        'bad.yaml: document 6 (FederatedJob digits): kind: "FederatedJob": is a second FederatedJob after '
        "document 5; put each job in a file of its own"
    )


def test_too_large() -> None:
    remedy = "name a plain file of at most 2097152 bytes, or /dev/stdin"
    assert faults_in("#" * 5_000_000) == f"bad.yaml: has 5000000 bytes, and may have 2097152; {remedy}"


def test_nested_too_deeply() -> None:
    assert (
        faults_in("[" * 100_000) == "bad.yaml: document 1: is nested too deeply; write it with fewer levels"
    )


def test_aliases_that_multiply_are_refused_without_being_written_out() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "values once its aliases are written out" in faults_in("\n".join(lines))


@pytest.mark.parametrize(
    "text",
    [
        "[" + "x," * 2000 + "]",
        "---\n" * 2000,
        "%a\n" * 2000,
        "- " * 2000,
        "a:\n" * 2000,
        "{a: [b], " * 500,
        "? " * 2000,
    ],
    ids=["list", "documents", "directives", "nested", "keys", "open", "questions"],
)
def test_a_file_is_given_up_where_it_becomes_more_work_than_any_manifest(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = 0
    fetch = yaml.SafeLoader.fetch_more_tokens

    def count_event(loader: yaml.SafeLoader) -> None:
        nonlocal fetched
        fetched += 1
        fetch(loader)

    monkeypatch.setattr(yaml.SafeLoader, "fetch_more_tokens", count_event)
    monkeypatch.setattr(json_yaml, "MAX_TOKENS", 100)
    last = faults_in(text).splitlines()[-1]
    assert last.endswith("holds more than 100 values, keys and punctuation marks; write a smaller file")
    assert fetched == 100


def test_a_federation_of_as_many_silos_as_there_may_be_is_far_from_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five of them, for a two-hundredth of the limit."""
    monkeypatch.setattr(json_yaml, "MAX_TOKENS", json_yaml.MAX_TOKENS * 5 // MAX_SILOS)
    silo = DIGITS[DIGITS.index("---") : DIGITS.index("---", DIGITS.index("kind: Silo"))]
    assert "punctuation" not in faults_in(silo * 5)


def test_of_very_many_faults_the_first_are_listed() -> None:
    fields = "".join(f"    field{number}: 1\n" for number in range(500))
    lines = faults_in(edited_manifest(("    localEpochs: 2\n", fields))).splitlines()
    assert len(lines) == MAX_FAULTS + 1
    assert lines[-1] == "bad.yaml: has more faults than these; correct these first"


def test_of_very_many_documents_with_faults_the_first_are_listed() -> None:
    lines = faults_in("--- 1\n" * 300).splitlines()
    assert len(lines) == MAX_FAULTS + 1
    assert lines[-1] == "bad.yaml: has more faults than these; correct these first"


def test_all_faults_at_once() -> None:
    text = edited_manifest(
        ("rounds: 10", "rounds: -1"), ("name: sgd", "name: adagrad"), ("index: 1", "index: 7")
    )
    lines = faults_in(text).splitlines()
    assert [line.split(": ")[2] for line in lines] == [
        "spec.datasets[0].partition.index",
        "spec.training.rounds",
        "spec.training.optimizer.name",
    ]


def test_a_syntax_error_comes_first_and_hides_no_other_document() -> None:
    text = edited_manifest(("index: 1", "index: 7"), (JOB, "metadata: {"))
    assert [line.split(": ")[1] for line in faults_in(text).splitlines()] == [
        "document 5",
        "document 3 (Silo south)",
    ]


def test_what_can_be_understood_is_given_in_spite_of_faults() -> None:
    Path("bad.yaml").write_text(edited_manifest(("index: 1", "index: 7")))
    parsed = parse_manifest("bad.yaml", read_documents(Path("bad.yaml")))
    federation, faults = parsed.federation, parsed.faults
    assert federation is not None
    assert [silo.metadata.name for silo in federation.silos] == ["west", "north"]
    assert len(faults) == 1


def test_a_fault_is_one_line_whatever_the_value() -> None:
    text = edited_manifest(("schedule: constant", 'schedule: "a\\nb\\u2028' + "x" * 200 + '"'))
    (line,) = faults_in(text).split("\n")
    assert line.endswith("...: is not a known choice; use constant, cosine or exponential")


def test_nothing_to_evaluate_on() -> None:
    text = edited_manifest(
        (", validationFraction: 0.1", ", validationFraction: 0"),
        ("every: 1, testDataset: digits-test", "every: 1"),
    )
    Path("bad.yaml").write_text(text)
    (fault,) = validate(Path("bad.yaml"))
    assert fault.line().endswith(
        "spec.data.validationFraction: 0: leaves the silos nothing to evaluate on; "
        "hold a part out, such as 0.1, or name a spec.evaluation.testDataset"
    )
