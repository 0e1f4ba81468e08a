"""Provenance is the chain from what was signed to the bytes of the model.

One line of JSON for the job, one for each exchange, one for the model. Each names the SHA-256 of the one before, so
that the last, which the job's key seals, stands for all of them. A line holds what a verifier needs offline: the sealed
tasks, which bind specification, contract and blobs; header and signature of each accepted update, which bind task,
contract and every block; and the digests of the state that they were folded to. Nothing in it depends on time, or on
how often the aggregator was started: the updates alone decide its bytes.

    provenance.jsonl    grows by a line with every exchange; `state.json` says how much of it counts
    provenance.json     the whole chain and its seal, beside the model
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, StringConstraints

from fedsilo.api.common import Fields
from fedsilo.api.digest import frozen_spec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.store import JobIdentity
from fedsilo.files.durable import publish, temporary_file
from fedsilo.methods.state import State
from fedsilo.wire import ChainEnd, SigningKey, VerifyKey, seal_chain

FILE = "provenance.json"

FIRST_DIGEST = "0" * 64
"""What the first line names as the digest of the line before."""

OPENING, ENDING = b'{"chain":[\n', b'\n],"seal":"'

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
BlobDigest = Annotated[str, StringConstraints(pattern=r"^(blake3-)?[0-9a-f]{64}$")]

Name = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
"""A text as in signed messages: it can be shown as it is, whoever wrote it."""


class _Fields(Fields):
    model_config = ConfigDict(strict=True)


class StateDigests(_Fields):
    """A state by its content.

    :param trees: name -> digest of the tree's blob, by the job's hash.
    :param values: SHA-256 of the values as JSON with sorted keys and nothing between tokens.
    """

    trees: dict[str, BlobDigest]
    values: Sha256


class RecordedKey(_Fields):
    """A silo, and the key that its updates are signed with."""

    name: Name
    key: str


class RecordedUpdate(_Fields):
    """What is kept of every accepted update.

    :param signed: header and signature, in base64; their digest is the update's.
    """

    signed: str


class JobLine(_Fields):
    """First line of the chain: what was to be done, whose keys count, and what the job began with.

    :param spec: the frozen specification, whose digest every task binds.
    :param silos: in the job's order, in which updates are folded.
    """

    kind: Literal["job"] = "job"
    format: Literal["fedsilo/provenance/v1"] = "fedsilo/provenance/v1"
    previous: Sha256 = FIRST_DIGEST
    name: Name
    uid: Name
    spec: dict[str, Any]
    task_key: str
    silos: list[RecordedKey]
    state: StateDigests


class ExchangeLine(_Fields):
    """Line of the chain for a completed exchange, with its tasks and accepted updates.

    :param tasks: silo -> its sealed task in base64, whether it answered or not.
    :param updates: silo -> its update, where one was accepted.
    :param state: what they were folded to.
    """

    kind: Literal["exchange"] = "exchange"
    previous: Sha256
    exchange: Name
    tasks: dict[Name, str]
    updates: dict[Name, RecordedUpdate]
    state: StateDigests


class ModelLine(_Fields):
    """Last line of the chain, with the digests of the files that were released.

    :param model: SHA-256 of `model.safetensors`.
    :param description: SHA-256 of `model.json`.
    """

    kind: Literal["model"] = "model"
    previous: Sha256
    model: Sha256
    description: Sha256


Line = JobLine | ExchangeLine | ModelLine


def job_line(
    identity: JobIdentity,
    spec: FederatedJobSpec,
    key: VerifyKey,
    silo_keys: Mapping[str, VerifyKey],
    state: State,
) -> JobLine:
    """First line of a job's chain, from its frozen specification, its keys and its first state."""
    return JobLine(
        name=identity.name,
        uid=identity.uid,
        spec=frozen_spec(spec),
        task_key=key.to_text(),
        silos=[RecordedKey(name=silo, key=silo_keys[silo].to_text()) for silo in identity.silos],
        state=digests_of(state),
    )


def exchange_line(
    previous: str,
    exchange: str,
    tasks: Mapping[str, bytes],
    updates: Mapping[str, bytes],
    state: State,
) -> ExchangeLine:
    """Line of the chain for a completed exchange, bound to the line before it.

    :param tasks: silo -> its sealed task.
    :param updates: silo -> header and signature of its accepted update.
    :param state: what they were folded to, stored.
    """
    return ExchangeLine(
        previous=previous,
        exchange=exchange,
        tasks={silo: _base64(sealed) for silo, sealed in tasks.items()},
        updates={silo: RecordedUpdate(signed=_base64(signed)) for silo, signed in updates.items()},
        state=digests_of(state),
    )


def new_lines(
    last: str | None,
    job: Callable[[], JobLine],
    exchange: str,
    tasks: Mapping[str, bytes],
    updates: Mapping[str, bytes],
    state: State,
) -> list[str]:
    """A completed exchange's line as it stands in the file; the first has that of the job before it.

    :param last: SHA-256 of the line before; None where there is none.
    :param tasks: and `updates`, `state`: as in `exchange_line`.
    """
    begun = [] if last is not None else [text_of(job())]
    previous = sha256_of(begun[0]) if last is None else last
    return [*begun, text_of(exchange_line(previous, exchange, tasks, updates, state))]


def digests_of(state: State) -> StateDigests:
    """A stored state by its content.

    :raises MethodError: when its values are what JSON cannot say.
    """
    document = state.to_json()
    values = json.loads(json.dumps(document["values"]))  # a number as a key is a text once it was stored
    return StateDigests(
        trees={name: ref["digest"] for name, ref in document["trees"].items()},
        values=hashlib.sha256(_exact_json(values).encode()).hexdigest(),
    )


def text_of(line: Line) -> str:
    """A line as it stands in the file, without its end."""
    return _exact_json(line.model_dump(mode="json", by_alias=True))


def sha256_of(text: str) -> str:
    """By which the next line names this one."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_provenance(directory: Path, model: str, lines: Path, end: ChainEnd, key: SigningKey) -> None:
    """Write the model's line, which ends the chain, and the seal, beside the model; again the same bytes.

    :param model: SHA-256 of `model.safetensors`.
    :param lines: file of the lines so far.
    :param end: where these end.
    """
    description = hashlib.sha256((directory / "model.json").read_bytes()).hexdigest()
    last = ModelLine(previous=end.chain.hex(), model=model, description=description)
    text = text_of(last).encode()
    sealed = seal_chain(ChainEnd(end.job, end.lines + 1, hashlib.sha256(text).digest()), key)
    path = directory / FILE
    with temporary_file(directory) as (file, temporary):
        file.write(OPENING)
        with lines.open("rb") as chain:
            for line in chain:
                file.write(line.removesuffix(b"\n") + b",\n")
        file.write(text + ENDING + base64.b64encode(sealed) + b'"}\n')
        publish(file, temporary, path)


def update_files(line: ExchangeLine, silos: Sequence[str]) -> dict[str, str]:
    """Silo, in this order, -> where its update is kept, below the directory of kept updates."""
    return {
        silo: f"{line.exchange}/{line.exchange}-{silo.rpartition('/')[2]}.update"
        for silo in silos
        if silo in line.updates
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _exact_json(value: Any) -> str:
    """One text for one value; unlike canonical JSON with its nulls and fractions, as it must be read back as it was."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
