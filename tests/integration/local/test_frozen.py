"""A training of the job's own that changes what is frozen, in real processes: nothing of it leaves a silo."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fedsilo.wire import open_blob
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import run

PARTS = {"frozen": ["encoder.*"]}


def blobs(inbox: Path) -> dict[str, tuple[str, ...]]:
    """Names of tensors by digest, of the blobs that a silo was handed; each is what its name says."""
    found = {}
    for path in (inbox / "blobs").glob("[!.]*"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        with open_blob(path) as opened:
            found[path.name] = tuple(opened)
    return found


def test_a_frozen_tensor_that_was_changed_leaves_no_silo(tmp_path: Path) -> None:
    manifest = write(
        tmp_path / "digits.yaml",
        silos("north", "south"),
        model={"parameters": PARTS},
        training={"trainer": "python:tests.unit.silo.networks:careless_trainer", "rounds": 1},
    )
    ended = run(manifest, tmp_path / "run")
    assert (ended.code, ended.document["reason"]) == (4, "MethodError")
    told = (
        "training changed tensor 'encoder.1.weight', which spec.model.parameters freezes: nothing is sent; "
    )
    assert told in ended.document["message"]
    assert not list((tmp_path / "run" / "aggregator").rglob("*.update"))
    handed = []
    for name in ("north", "south"):
        silo = tmp_path / "run" / "silos" / name
        assert not list(silo.glob("guard/outbox/*.update")) and not list(silo.glob("drop/*/tensors"))
        events = [
            json.loads(line)["event"] for line in (silo / "audit" / "log.jsonl").read_text().splitlines()
        ]
        assert "signature" in events and "departure" not in events
        handed.append(blobs(silo / "inbox"))
    offered = blobs(tmp_path / "run" / "aggregator")
    whole = {digest for digest, names in offered.items() if "encoder.1.weight" in names}
    assert len(whole) == 1, "the frozen tensors of one blob"
    # The job ends with the first silo that fails: the other one may not have fetched anything by then.
    fetched = [found for found in handed if any("encoder.1.weight" in names for names in found.values())]
    assert fetched and all(whole <= found.keys() for found in fetched), "in every silo"
