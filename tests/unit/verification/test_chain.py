"""Whatever is changed in a finished job's directory, `fedsilo verify` names it: file, round, silo, what."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsilo.errors import FileDamaged, ManifestInvalid, MethodError, ProvenanceInvalid
from fedsilo.files.json_files import write_with_digest
from fedsilo.methods.fedavg import OneModel
from fedsilo.methods.interface import Phase
from fedsilo.methods.method import Method
from fedsilo.wire import ChainEnd, SigningKey, seal_chain
from tests.federate import TASK_KEY, silo_key
from tests.unit.verification.chains import (
    Lines,
    edit,
    edit_and_link,
    flip_bit,
    lines_of,
    verify_directory,
    write,
)

TRAIN_1, TRAIN_2, EVALUATE, MODEL = 1, 2, 3, 4
S0, S1, S2 = "silos/s0", "silos/s1", "silos/s2"
KEPT_UPDATE = "kept/r00002-train/r00002-train-s1.update"
ROUND_1, ROUND_2 = "round 1 (r00001-train): ", "round 2 (r00002-train): "


def test_an_untouched_directory_holds(finished_job: Path) -> None:
    chain = verify_directory(finished_job)
    assert [exchange.line.exchange for exchange in chain.exchanges] == [
        "r00001-train",
        "r00002-train",
        "r00002-evaluate",
    ]
    answered = [sorted(exchange.line.updates) for exchange in chain.exchanges]
    assert answered == [[S0, S1, S2], [S0, S1], [S0, S1]]
    assert (chain.tasks, chain.updates, chain.kept) == (9, 7, 7)
    assert chain.model == json.loads((finished_job / "model.json").read_text())["sha256"]
    assert chain.job.pinned == set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda silos: silos[1].update(key=silos[0]["key"]),
            f"job: silo {S0} and silo {S1} have one key, ed25519:",
        ),
        (
            lambda silos: silos[2].update(key=TASK_KEY.verify_key.to_text()),
            f"job: the job itself and silo {S2} have one key, ed25519:",
        ),
    ],
)
def test_two_owners_of_one_key_are_one(
    directory: Path, change: Callable[[list[dict[str, str]]], object], message: str
) -> None:
    edit_and_link(directory, lambda lines: change(lines[0]["silos"]), TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=re.escape(message)):
        verify_directory(directory)


def without_rounds(lines: Lines) -> None:
    """What the specification of a job that calibrates an existing model says, of a method that trains."""
    lines[0]["spec"]["training"]["rounds"] = 0
    lines[0]["spec"]["evaluation"]["every"] = 1
    del lines[TRAIN_1:MODEL]


def without_silos(lines: Lines) -> None:
    lines[0]["silos"] = []
    lines[0]["spec"]["silos"] = {"selector": {"matchLabels": {"a": "b"}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_rounds, "job: spec.training.rounds: 0: is too small: method fedavg has no exchange"),
        (without_silos, "job: silos: is empty"),
    ],
)
def test_a_job_that_nobody_could_run_has_no_chain(
    directory: Path, change: Callable[[Lines], object], message: str
) -> None:
    edit_and_link(directory, change, TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=re.escape(message)):
        verify_directory(directory)


def test_a_declaration_that_fails_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Method) -> tuple[Phase, ...]:
        raise IndexError("of somebody else's")

    monkeypatch.setattr(OneModel, "phases", failing)
    with pytest.raises(
        MethodError, match=r"job: the declaration of method fedavg failed: IndexError: of some"
    ):
        verify_directory(directory)


@pytest.mark.parametrize("name", ["silos/S0", "silos/s0.", "../s0", "s0"])
def test_a_silo_has_a_name_that_a_silo_can_have(directory: Path, name: str) -> None:
    def change(lines: Lines) -> None:
        lines[0]["silos"][0]["name"] = name
        lines[0]["spec"]["silos"] = {"selector": {"matchLabels": {"a": "b"}}}

    edit_and_link(directory, change, TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=f"silo {re.escape(name)}: is no namespace/name of a Silo"):
        verify_directory(directory)


def replace_file(name: str, put: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        (root / name).unlink()
        put(root / name)

    return apply


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def link_elsewhere(path: Path) -> None:
    other = path.parent.parent.parent / "elsewhere"
    other.write_bytes(b"of nobody's business")
    path.symlink_to(other)


def folder_elsewhere(root: Path) -> None:
    (root / "kept").rename(root.parent / "kept-elsewhere")
    (root / "kept").symlink_to(root.parent / "kept-elsewhere")


def long_line(root: Path) -> None:
    path = root / "provenance.json"
    path.write_bytes(
        path.read_bytes().replace(b',\n{"exchange"', b',\n{"exchange' + b"x" * (40 << 20) + b'"', 1)
    )


def many_values(root: Path) -> None:
    path = root / "provenance.json"
    path.write_bytes(path.read_bytes().replace(b'"kind":"job"', b'"kind":[' + b"[]," * 300_000 + b"[]]", 1))


def zeros(root: Path) -> None:
    path = root / "provenance.json"
    first = path.read_bytes().split(b",\n")[0]
    path.write_bytes(first + b",\n")
    os.truncate(path, 1 << 40)


FILES = ("provenance.json", "model.safetensors", "model.json", KEPT_UPDATE)
HOSTILE_FILES = {
    **{f"{name} that is a pipe": (replace_file(name, os.mkfifo), FileDamaged, "is a pipe") for name in FILES},
    **{
        f"{name} that is a link": (replace_file(name, link_elsewhere), FileDamaged, "is a link")
        for name in FILES
    },
    "a provenance of a terabyte": (
        replace_file(FILES[0], terabyte),
        ProvenanceInvalid,
        "does not begin with",
    ),
    "a model of a terabyte": (replace_file(FILES[1], terabyte), ProvenanceInvalid, "malformed: tensor file"),
    "a description of a terabyte": (
        replace_file(FILES[2], terabyte),
        ProvenanceInvalid,
        "model.json: has more than",
    ),
    "an update of a terabyte": (replace_file(KEPT_UPDATE, terabyte), ProvenanceInvalid, "malformed: "),
    "a chain of zeros": (zeros, ProvenanceInvalid, "is no text of JSON as fedsilo writes it"),
    "a line without end": (long_line, ProvenanceInvalid, "has a line of more than"),
    "more values than a document has": (many_values, ProvenanceInvalid, "job: holds more than 250000 values"),
    "kept updates elsewhere": (folder_elsewhere, FileDamaged, "lies in kept, which is a link"),
}


@pytest.mark.parametrize("case", HOSTILE_FILES)
def test_what_is_no_plain_file_of_bounded_size_is_named_and_takes_no_memory(
    directory: Path, case: str
) -> None:
    change, error, message = HOSTILE_FILES[case]
    change(directory)
    tracemalloc.start()
    try:
        with pytest.raises(error, match=re.escape(message)) as caught:
            verify_directory(directory)
        assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_the_silos_that_scored_the_released_model_were_sent_it(finished_job: Path) -> None:
    chain = verify_directory(finished_job)
    blobs = {link.digest for task in chain.exchanges[-1].tasks.values() for link in task.blobs}
    assert blobs == {chain.model}


def test_a_description_is_as_long_as_the_chain_has_updates(
    finished_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of 20 silos and 1,000 rounds names 200,000 updates, which is more than a document may hold."""
    description = json.loads((finished_job / "model.json").read_bytes())
    description["updates"] = []
    beside = json.dumps(description)
    separators = sum(map(beside.count, ",[{"))
    monkeypatch.setattr("fedsilo.verification.chain.MAX_DOCUMENT_BYTES", len(beside))
    monkeypatch.setattr("fedsilo.verification.chain.MAX_DOCUMENT_VALUES", separators)
    assert verify_directory(finished_job).updates == 7


def test_a_description_of_too_many_values_is_told_as_that(directory: Path) -> None:
    path = directory / "model.json"
    path.write_text(f'{{"note": [{"[]," * 300_000}[]], {path.read_text()[1:]}')
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit_and_link(directory, set_field(MODEL, "description", to=digest), TASK_KEY)
    with pytest.raises(ProvenanceInvalid, match=r"model\.json: holds more than \d+ values$"):
        verify_directory(directory)


def set_task(line: int, silo: str, change: Callable[[Lines], str]) -> Callable[[Lines], None]:
    def apply(lines: Lines) -> None:
        lines[line]["tasks"][silo] = change(lines)

    return apply


def set_update(line: int, silo: str, change: Callable[[Lines], str]) -> Callable[[Lines], None]:
    def apply(lines: Lines) -> None:
        lines[line]["updates"][silo]["signed"] = change(lines)

    return apply


def set_field(line: int, *path: str, to: object) -> Callable[[Lines], None]:
    def apply(lines: Lines) -> None:
        place = lines[line]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to

    return apply


OTHER_DIGEST = "0" * 63 + "1"
OTHER_KEY = silo_key("a stranger").verify_key.to_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field(0, "name", to="other"), "line 2: names "),
        (set_field(0, "spec", "training", "rounds", to=3), "line 2: names "),
        (set_field(0, "spec", "method", "name", to="nothing-installed"), "line 2: names "),
        (set_field(0, "previous", to=OTHER_DIGEST), "job: names a line before it, and is the first"),
        (set_field(0, "format", to="fedsilo/provenance/v2"), "job: format: Input should be"),
        (set_field(0, "note", to="hello"), "job: note: Extra inputs are not permitted"),
        (
            set_field(TRAIN_1, "state", "trees", "model", to=OTHER_DIGEST),
            f"{ROUND_2}task of silos/s0: blob model is ",
        ),
        (set_field(TRAIN_1, "state", "values", to=OTHER_DIGEST), f"{ROUND_2}names "),
        (set_field(TRAIN_1, "state", "values", to="0"), f"{ROUND_1}state.values: String should match"),
        (set_field(TRAIN_2, "exchange", to="r00001-train"), f"{ROUND_2}is r00001-train"),
        (lambda lines: lines.pop(TRAIN_2), f"{ROUND_2}is r00002-evaluate"),
        (lambda lines: lines.insert(TRAIN_2, lines[TRAIN_1]), f"{ROUND_2}is r00001-train"),
        (
            lambda lines: lines.insert(MODEL, lines[EVALUATE]),
            "model: has lines before it after the job's last exchange",
        ),
        (lambda lines: lines[TRAIN_1]["tasks"].pop(S1), f"{ROUND_1}silo {S1} was drawn and not asked"),
        (set_task(TRAIN_1, S1, lambda lines: lines[1]["tasks"][S0]), f"{ROUND_1}task of {S1}: silo is {S0}"),
        (
            set_task(TRAIN_2, S1, lambda lines: lines[1]["tasks"][S1]),
            f"{ROUND_2}task of {S1}: task is r00001-train-s1; must be r00002-train-s1",
        ),
        (
            set_task(TRAIN_2, S1, lambda lines: flip_bit(lines[2]["tasks"][S1], 60)),
            f"{ROUND_2}task of {S1}: signature-invalid: ",
        ),
        (set_task(TRAIN_2, S1, lambda _: "?"), f"{ROUND_2}task of {S1}: is not base64"),
        (
            set_update(TRAIN_2, S1, lambda lines: flip_bit(lines[2]["updates"][S1]["signed"], -1)),
            f"{ROUND_2}update of {S1}: signature-invalid: ",
        ),
        (
            set_update(TRAIN_2, S1, lambda lines: flip_bit(lines[2]["updates"][S1]["signed"], 100)),
            f"{ROUND_2}update of {S1}: signature-invalid: ",
        ),
        (
            set_update(TRAIN_2, S1, lambda lines: lines[2]["updates"][S0]["signed"]),
            f"{ROUND_2}update of {S1}: signature-invalid: ",
        ),
        (
            set_update(TRAIN_2, S1, lambda lines: lines[1]["updates"][S1]["signed"]),
            f"{ROUND_2}update of {S1}: task is r00001-train-s1; must be r00002-train-s1",
        ),
        (
            lambda lines: lines[2]["updates"].update({"silos/x": lines[2]["updates"][S0]}),
            f"{ROUND_2}silos/x answered and was not asked",
        ),
        (
            lambda lines: lines[1]["tasks"].update({"silos/x": lines[1]["tasks"][S0]}),
            f"{ROUND_1}silo silos/x was not drawn",
        ),
        (
            set_field(0, "\x1b[2J\n", to=1),
            r"job: \x1b[2J\n: Extra inputs are not permitted",
        ),
        (
            set_field(TRAIN_1, "exchange", to="r00001 \x1b[2J"),
            f"{ROUND_1}exchange: String should match pattern",
        ),
        (lambda lines: lines[2]["updates"].pop(S1), f"{ROUND_2}has 1 updates; the job needs 2"),
        (set_field(MODEL, "model", to=OTHER_DIGEST), "model.safetensors: its SHA-256 is "),
        (set_field(MODEL, "description", to=OTHER_DIGEST), "model.json: its SHA-256 is "),
        (set_field(MODEL, "previous", to=OTHER_DIGEST), "model: names 000000000000 as the line before it"),
    ],
)
def test_a_changed_line_is_named(directory: Path, change: Callable[[Lines], object], message: str) -> None:
    edit(directory, change)
    with pytest.raises(ProvenanceInvalid, match=re.escape(message)):
        verify_directory(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field(0, "name", to="other"), "provenance.json: seal: chain is "),
        (set_field(0, "uid", to="other"), f"{ROUND_1}task of {S0}: job is job-uid; must be other"),
        (set_field(0, "spec", "training", "batchSize", to=31), f"{ROUND_1}task of {S0}: specDigest is "),
        (set_field(0, "spec", "training", "rounds", to=-1), "job: spec.training.rounds: "),
        (set_field(0, "taskKey", to=OTHER_KEY), f"{ROUND_1}task of {S0}: signature-invalid"),
        (set_field(0, "taskKey", to="none"), "job: taskKey: public key 'none': write 'ed25519:'"),
        (
            lambda lines: lines[0]["silos"][1].update(key=OTHER_KEY),
            f"{ROUND_1}update of {S1}: signature-invalid",
        ),
        (
            lambda lines: lines[0]["silos"].reverse(),
            "job: its silos are silos/s2, silos/s1, silos/s0, not those",
        ),
        (set_field(EVALUATE, "state", "trees", "model", to=OTHER_DIGEST), "seal: chain is "),
        (lambda lines: lines[TRAIN_1]["updates"].pop(S1), "model.json: names another model or other updates"),
    ],
)
def test_lines_that_were_linked_again_lack_the_jobs_seal(
    directory: Path, change: Callable[[Lines], object], message: str
) -> None:
    edit_and_link(directory, change)
    with pytest.raises(ProvenanceInvalid, match=re.escape(message)):
        verify_directory(directory)


def test_the_seal_must_be_by_the_jobs_key(directory: Path) -> None:
    edit_and_link(directory, lambda _: None, silo_key(S0))
    with pytest.raises(ProvenanceInvalid, match="seal: signature-invalid"):
        verify_directory(directory)
    edit_and_link(directory, lambda _: None, TASK_KEY)
    verify_directory(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job": "other"}, "job is other; must be job-uid"),
        ({"lines": 4}, "lines is 4; must be 5"),
        ({}, "chain is "),
    ],
)
def test_a_seal_of_another_chain_does_not_hold(directory: Path, change: dict[str, Any], message: str) -> None:
    end = {"job": "job-uid", "lines": 5, "chain": bytes(32), **change}
    seal = base64.b64encode(seal_chain(ChainEnd(**end), TASK_KEY)).decode()
    write(directory, lines_of(directory), seal)
    with pytest.raises(ProvenanceInvalid, match=f"seal: {message}"):
        verify_directory(directory)


def test_a_pinned_key_is_the_one_that_counts(finished_job: Path) -> None:
    mine = silo_key(S1).verify_key
    assert verify_directory(finished_job, **{S1: mine}).job.pinned == {S1}
    with pytest.raises(
        ProvenanceInvalid, match=re.escape(f"the key of {S1} is {mine.to_text()}, but --key says")
    ):
        verify_directory(finished_job, **{S1: SigningKey.generate().verify_key})
    with pytest.raises(
        ManifestInvalid, match="--key north: no such key; the job has job, silos/s0, silos/s1, silos/s2"
    ):
        verify_directory(finished_job, north=mine)


def swap(directory: Path) -> None:
    shutil.copyfile(directory / "kept/r00002-train/r00002-train-s0.update", directory / KEPT_UPDATE)


def cut(directory: Path) -> None:
    (directory / KEPT_UPDATE).write_bytes((directory / KEPT_UPDATE).read_bytes()[:-1])


def extend(directory: Path) -> None:
    (directory / KEPT_UPDATE).write_bytes((directory / KEPT_UPDATE).read_bytes() + b"\xc0")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "model.safetensors").unlink(), "model.safetensors: is missing"),
        (lambda root: (root / "model.json").unlink(), "model.json: is missing"),
        (lambda root: (root / "model.json").write_text("{}"), "model.json: its SHA-256 is "),
        (lambda root: (root / KEPT_UPDATE).unlink(), f"{KEPT_UPDATE}: round 2, silo {S1}: is missing"),
        (swap, f"{KEPT_UPDATE}: round 2, silo {S1}: its SHA-256 is "),
        (cut, f"{KEPT_UPDATE}: round 2, silo {S1}: truncated: "),
        (extend, f"{KEPT_UPDATE}: round 2, silo {S1}: too-long: "),
        (lambda root: (root / "provenance.json").write_bytes(b""), "provenance.json: does not begin with"),
        (lambda root: (root / "provenance.json").write_bytes(b'{"chain":[\n{}'), "does not end with a seal"),
    ],
)
def test_a_changed_file_is_named(directory: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(directory)
    with pytest.raises(ProvenanceInvalid, match=re.escape(message)):
        verify_directory(directory)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", KEPT_UPDATE])
def test_what_cannot_be_read_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    (directory / name).mkdir()
    with pytest.raises(FileDamaged, match=re.escape(f"{directory / name}: cannot be read (Is a directory)")):
        verify_directory(directory)


def test_without_kept_updates_all_but_their_tensors_is_verified(directory: Path) -> None:
    shutil.rmtree(directory / "kept")
    assert verify_directory(directory).kept is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["provenance.json", "provenance.json", KEPT_UPDATE, "model.safetensors", "model.json"]
    ),
    place=st.floats(0, 1, exclude_max=True),
    bits=st.integers(1, 255),
)
def test_any_single_changed_byte_is_found(directory: Path, name: str, place: float, bits: int) -> None:
    path = directory / name
    content = path.read_bytes()
    changed = bytearray(content)
    changed[int(place * len(changed))] ^= bits
    path.write_bytes(changed)
    try:
        with pytest.raises(ProvenanceInvalid):
            verify_directory(directory)
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("length", [0, 1, 500, -1])
def test_a_cut_file_is_found(directory: Path, length: int) -> None:
    path = directory / "provenance.json"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ProvenanceInvalid):
        verify_directory(directory)


def test_a_run_is_verified_against_what_it_says_of_itself(directory: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("provenance.json", "model.safetensors", "model.json"):
        shutil.copyfile(directory / name, run / name)
    directory.rename(run / "aggregator")
    identity = {
        "job": "federation/job",
        "uid": "job-uid",
        "specDigest": verify_directory(run).job.spec_digest,
    }
    write_with_digest(run / "run.json", identity | {"inProcess": False})
    assert verify_directory(run).kept == 7
    write_with_digest(run / "run.json", identity | {"uid": "another", "inProcess": False})
    with pytest.raises(ProvenanceInvalid, match=r"job: is job-uid with .*, but run.json says another with "):
        verify_directory(run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[{'[],' * 340_000}[]]", "run.json: holds more than 1000 values"),
        (f'"{"x" * (2 << 20)}"', "run.json: cannot be read (has "),
    ],
    ids=["empty lists", "a long text"],
)
def test_what_a_run_says_of_itself_is_short(directory: Path, text: str, message: str) -> None:
    (directory / "run.json").write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(FileDamaged, match=re.escape(message)):
            verify_directory(directory)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
