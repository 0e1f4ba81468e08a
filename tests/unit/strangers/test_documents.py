"""Each document of a stranger is refused in one line: no hang, no traceback, nothing outside, no memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.federate import federate, job_spec, runners, silo_holding
from tests.unit.strangers.opening import run_opening

MODEL, DESCRIPTION, PROVENANCE, MANIFEST = "model.safetensors", "model.json", "provenance.json", "job.yaml"
UPDATE = "kept/r00001-train/r00001-train-s0.update"
MOST_BYTES = 64 << 20
"""Bytes above the honest case."""

VERIFY = ("verify", ".")
EVALUATE = ("evaluate", "--model", MODEL, "-f", MANIFEST)
EXPORT = ("export", "--model", MODEL, "-f", MANIFEST, "--torchscript", "model.pt")
VALIDATE = ("validate", "-f", MANIFEST)
JOIN = ("silo", "join", "invitation.yaml", "--dir", "silo")
RECEIPTS = ("silo", "receipts", ".")
LOG = "audit/log.jsonl"

Change = Callable[[Path], object]


def replace_file(name: str, put: Change) -> Change:
    """Something else in the place of a file."""

    def apply(root: Path) -> None:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        put(path)

    return apply


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "outside/secret")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}/{path.name}")


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def holding(content: str | bytes) -> Change:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def change_description(**changes: Any) -> Change:
    """A model.json with other fields."""

    def apply(root: Path) -> None:
        path = root / DESCRIPTION
        path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))

    return apply


def header(text: bytes, length: int | None = None) -> Change:
    """A model of which the header says this, and model.json has the digest."""

    def apply(root: Path) -> None:
        content = (len(text) if length is None else length).to_bytes(8, "little") + text
        (root / MODEL).write_bytes(content)
        change_description(sha256=hashlib.sha256(content).hexdigest())(root)

    return apply


def before_the_model(text: str) -> Change:
    def apply(root: Path) -> None:
        path = root / DESCRIPTION
        path.write_text(f'{{"note": {text}, {path.read_text()[1:]}')

    return apply


BASE = {"name": "mlp", "config": {"hidden": [60_000, 60_000]}}
WIDE_DATA = {"inputShape": [60_000], "classes": 4}
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
KEY = f"ed25519:{'A' * 43}="
INVITATION: dict[str, Any] = {
    "apiVersion": "fedsilo.io/v1alpha1",
    "kind": "Invitation",
    "hub": {"url": "https://127.0.0.1:1", "key": KEY},
    "silo": "silo-clinic/clinic",
    "token": "s3cret",
    "expires": "2030-01-01T00:00:00Z",
    "checksum": "0" * 16,
}


def invitation(**changes: Any) -> Change:
    def apply(root: Path) -> None:
        hub = INVITATION["hub"] | changes.pop("hub", {})
        (root / "invitation.yaml").write_text(yaml.safe_dump(INVITATION | changes | {"hub": hub}))

    return apply


DOCUMENTS: dict[str, tuple[tuple[str, ...], Change, str]] = {
    # What is no plain file.
    "a manifest that is a pipe": (VALIDATE, replace_file(MANIFEST, pipe), "is a pipe"),
    "a manifest that is a link out": (VALIDATE, replace_file(MANIFEST, link), "a link that leads out"),
    "a manifest that is a device": (VALIDATE, replace_file(MANIFEST, device), "a link that leads out"),
    "a manifest that is a socket": (VALIDATE, replace_file(MANIFEST, unix_socket), "is a socket"),
    "a manifest of a terabyte": (VALIDATE, replace_file(MANIFEST, terabyte), "has 1099511627776 bytes"),
    "a model that is a pipe": (EVALUATE, replace_file(MODEL, pipe), "is a pipe"),
    "a model that is a link out": (EVALUATE, replace_file(MODEL, link), "a link that leads out"),
    "a model of a terabyte": (EVALUATE, replace_file(MODEL, terabyte), "bytes"),
    "a description that is a pipe": (EXPORT, replace_file(DESCRIPTION, pipe), "is a pipe"),
    "a description that is a link out": (EVALUATE, replace_file(DESCRIPTION, link), "a link that leads out"),
    "a description that is a device": (EVALUATE, replace_file(DESCRIPTION, device), "a link that leads out"),
    "a description of a terabyte": (EXPORT, replace_file(DESCRIPTION, terabyte), "has 1099511627776 bytes"),
    "a provenance that is a pipe": (VERIFY, replace_file(PROVENANCE, pipe), "is a pipe"),
    "a provenance that is a link out": (VERIFY, replace_file(PROVENANCE, link), "is a link"),
    "a provenance of a terabyte": (VERIFY, replace_file(PROVENANCE, terabyte), "does not begin with"),
    "an update that is a pipe": (VERIFY, replace_file(UPDATE, pipe), "is a pipe"),
    "an update that is a link out": (VERIFY, replace_file(UPDATE, link), "is a link"),
    "an update of a terabyte": (VERIFY, replace_file(UPDATE, terabyte), "malformed"),
    "a model of a terabyte to verify": (VERIFY, replace_file(MODEL, terabyte), "malformed"),
    "an invitation that is a pipe": (JOIN, replace_file("invitation.yaml", pipe), "is a pipe"),
    "an invitation of a terabyte": (
        JOIN,
        replace_file("invitation.yaml", terabyte),
        "has 1099511627776 bytes",
    ),
    "a log that is a pipe": (RECEIPTS, replace_file(LOG, pipe), "is a pipe"),
    "a log of a terabyte": (RECEIPTS, replace_file(LOG, terabyte), "has a line that no guard writes"),
    # More work than a document is.
    "a description that is nested without end": (
        EVALUATE,
        before_the_model("[" * 100_000),
        "nested too deeply",
    ),
    "a description of a number without end": (
        EVALUATE,
        before_the_model("9" * 100_000),
        "number that is too long",
    ),
    "a description of a million lists": (
        EVALUATE,
        before_the_model(f"[{'[],' * 10**6}[]]"),
        "more than 250000 values",
    ),
    "a manifest that is nested without end": (
        VALIDATE,
        replace_file(MANIFEST, holding("[" * 100_000)),
        "nested too deeply",
    ),
    "a manifest of aliases": (
        VALIDATE,
        replace_file(MANIFEST, holding(BOMB)),
        "holds more than 1000000 values",
    ),
    "a manifest of commas": (
        VALIDATE,
        replace_file(MANIFEST, holding(f"[{'1,' * 10**6}1]")),
        "values, keys and punctuation",
    ),
    "a manifest with zeros": (VALIDATE, replace_file(MANIFEST, holding("a: \0")), "that YAML does not allow"),
    "an invitation of aliases": (JOIN, replace_file("invitation.yaml", holding(BOMB)), "is no invitation"),
    "a header of 2^63 bytes": (EVALUATE, header(b"{}", 1 << 63), "header of 9223372036854775808"),
    "a header that is nested without end": (EVALUATE, header(b"[" * 100_000), "its header is not JSON"),
    # What is described.
    "layers of 60,000 x 60,000": (
        EVALUATE,
        change_description(model=BASE, data=WIDE_DATA),
        "give (5, 60000)",
    ),
    "encoders without number": (
        EVALUATE,
        change_description(model={"name": "concatenated", "config": {"encoders": 10**9, "base": BASE}}),
        "encoders: Input should be less than or equal to 1000",
    ),
    "a model made of models": (
        EXPORT,
        change_description(
            model={"name": "gated", "config": {"base": {"name": "gated", "config": {}}, "mixes": "logits"}}
        ),
        "is made of other models itself",
    ),
    # Who is meant.
    "a hub behind another's name": (
        JOIN,
        invitation(hub={"url": "https://hub.example@127.0.0.1:1"}),
        "hub.url: ",
    ),
    "a hub with a query": (JOIN, invitation(hub={"url": "https://127.0.0.1:1/?to="}), "hub.url: "),
    "a silo that is a path": (JOIN, invitation(silo="../clinic"), "silo: has not the right form"),
    "a key that is none": (JOIN, invitation(hub={"key": "ed25519:AAAA"}), "hub.key: has not the right form"),
}


@pytest.fixture(scope="module")
def honest_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an aggregator leaves, its manifest, and the data of the silos."""
    root = tmp_path_factory.mktemp("honest")
    spec = job_spec("fedavg", 2, rounds=1, aggregator={"keepUpdates": True}, participation={"minSilos": 2})
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    features = (rng.normal(0, 0.3, (40, 6)) + np.eye(6)[labels]).astype(np.float32)
    silos = [silo_holding(root, name, features, labels) for name in ("s0", "s1")]
    federate(root, spec, runners(spec, silos, root))
    documents: list[dict[str, Any]] = []
    for silo in silos:
        name = silo.metadata.name
        shutil.copy(root / f"{name}.npz", root / "aggregator")
        dataset = {"name": "data", "loader": "npz", "config": {"path": f"{name}.npz"}}
        documents.append(_document("Silo", "silos", name, {"datasets": [dataset]}))
    fields = spec.model_dump(by_alias=True, mode="json", exclude_unset=True)
    fields["data"]["validationFraction"] = 0.25
    documents.append(_document("FederatedJob", "federation", "honest", fields))
    (root / "aggregator" / MANIFEST).write_text(yaml.safe_dump_all(documents))
    return root / "aggregator"


def _document(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "fedsilo.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def stranger(honest_directory: Path, tmp_path: Path) -> Path:
    """A copy of it, and a folder beside it of which nothing may be read."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("of nobody's business")
    return Path(shutil.copytree(honest_directory, tmp_path / "stranger"))


@pytest.fixture(scope="module")
def peaks(honest_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Memory of the honest cases, which must succeed."""
    import fedsilo.local.evaluation  # noqa: F401 (what the processes would import each)

    found = {}
    for command in (VALIDATE, VERIFY, EVALUATE, EXPORT):
        at = Path(shutil.copytree(honest_directory, tmp_path_factory.mktemp("copy") / "honest"))
        done = run_opening(command, at, at.parent / "outside")
        assert done.code == 0, done.lines
        found[command[0]] = done.peak
    return found


THOROUGH = {"a manifest of commas"}
"""Documents of which reading so much as is permitted takes seconds."""


@pytest.mark.parametrize(
    "document",
    [pytest.param(name, marks=[pytest.mark.thorough] if name in THOROUGH else []) for name in DOCUMENTS],
)
def test_it_is_refused_in_one_line(document: str, stranger: Path, peaks: dict[str, int]) -> None:
    command, change, words = DOCUMENTS[document]
    change(stranger)
    done = run_opening(command, stranger, stranger.parent / "outside")
    assert done.code is not None, "it does not end"
    assert done.code in (2, 5, 6, 7, 8, 9), done.lines
    refusals = [line for line in done.lines if words in line]
    assert refusals, done.lines
    assert all(line.isprintable() and line.startswith("fedsilo: ") for line in done.lines)
    assert len(done.lines) == 1 or command == VALIDATE, done.lines
    assert not done.outside
    assert not (stranger / "silo").exists(), "no key is made"
    assert done.peak < peaks.get(command[0], 0) + MOST_BYTES, f"{done.peak >> 20} MB"
