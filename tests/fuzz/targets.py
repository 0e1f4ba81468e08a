"""What reads bytes from outside or files again, each with honest inputs and the errors with which it may refuse others.

The input of a directory is what happens to an honest one (`tests.fuzz.directories`).
"""

from __future__ import annotations

import base64
import io
import json
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedsilo.api.documents import read_documents
from fedsilo.api.loading import parse_manifest
from fedsilo.data.array_files import read_npz
from fedsilo.data.catalogue import NpzConfig
from fedsilo.encodings.encoding import in_memory_parts
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.zstd import ZstdEncoding
from fedsilo.errors import DataInvalid, FedsiloError, FileDamaged, PolicyRefused, Problem
from fedsilo.files.json_files import read_json, read_with_digest, write_json, write_with_digest
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import GENESIS, AuditBroken, line_digest, text_of
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.silo.reply import ReplyMetadata
from fedsilo.silo.trainer_files import read_object
from fedsilo.wire import (
    REQUEST,
    TASK,
    UPDATE,
    BlobLink,
    ModelSignature,
    Task,
    TensorSpec,
    UpdateCheck,
    open_blob,
    open_envelope,
    open_task,
    open_update,
    seal_task,
    sign_request,
    specs_of,
    verify_request,
    write_tensors,
)
from fedsilo.wire.envelope import SIGNATURE_HEAD, read_bin_head, split_envelope
from fedsilo.wire.fields import pack
from fedsilo.wire.header import decode_header
from fedsilo_agent.guard.announced import read_announcement
from fedsilo_agent.guard.audit import AuditLog, verify
from fedsilo_agent.guard.drops import read_failure
from fedsilo_aggregator.request_fields import failure_report
from tests.fuzz import provenance
from tests.fuzz.data_files import data_files
from tests.fuzz.directories import recipe
from tests.fuzz.directory_targets import directories
from tests.fuzz.mutation import Choose, mutated_input
from tests.paths import ROOT
from tests.segments import segments_of
from tests.unit.wire import examples
from tests.unit.wire.examples import KEY
from tests.vectors import segmented
from tests.vectors.example import SILO

Parse = Callable[[bytes], object]

DIRECTORY_EXAMPLES = 60
DATA_FILE_EXAMPLES = 100

LIMIT_SECONDS = 20.0
"""Time for one input, of which most take milliseconds."""


@dataclass(frozen=True)
class Target:
    """One parser that is fuzzed, with its honest inputs.

    :param parse: what a program does with such bytes, up to the point where it relies on them.
    :param refusals: the errors that a program catches there.
    :param draw: makes an input of the seeds.
    :param examples: inputs in the suite.
    """

    name: str
    parse: Parse
    refusals: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    draw: Callable[[Sequence[bytes], Choose], bytes] = mutated_input
    examples: int = 300

    def try_(self, data: bytes) -> None:
        """Parse, and swallow a refusal.

        :raises Exception: what else the parser raises, a defect.
        """
        try:
            with _limit_time():
                self.parse(data)
        except self.refusals as refusal:
            assert str(refusal).strip(), "a refusal says why"


class StuckError(BaseException):
    """An input took so long that nobody would wait for its end."""


@contextmanager
def _limit_time() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise StuckError(f"after {LIMIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        yield
    except StuckError as stuck:
        raise AssertionError(f"no end {stuck}") from stuck
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_file(parse: Callable[[Path], object], name: str = "input") -> Parse:
    """A parser of files as a parser of bytes."""

    def parse_bytes(data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            return parse(path)

    return parse_bytes


def written_bytes(write: Callable[[Path], object]) -> bytes:
    """What a function writes into a file."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def signed_bytes(domain: str, header: bytes) -> bytes:
    """The bytes as a header that the right key has signed: what somebody with a key can send."""
    return pack(header) + SIGNATURE_HEAD + KEY.sign(domain, header)


def header_of(domain: str, data: bytes) -> bytes:
    """The signed header of a sealed message."""
    return split_envelope(domain, data)[0]


def _update(data: bytes) -> object:
    examples.check(data)
    return in_file(_open_update)(data)


def _update_in_segments(data: bytes) -> object:
    with segments_of(segmented.SEGMENT_BYTES):
        checker = UpdateCheck(segmented.EXPECTED_UPDATE, SILO.verify_key)
        checker.feed(data)
        checker.finish()
        return in_file(_read_tensors)(data)


def _header_in_segments(data: bytes) -> object:
    with segments_of(segmented.SEGMENT_BYTES):
        return decode_header(data).tensors


def _read_tensors(path: Path) -> object:
    with open_update(path) as update:
        return [update.tensor(entry.name) for entry in update.header.tensors]


def _update_header(update: bytes) -> bytes:
    head = read_bin_head(UPDATE, update)
    assert head is not None
    return update[head[0] : head[0] + head[1]]


def _open_update(path: Path) -> object:
    with open_update(path) as blocks:
        return [blocks.names(kind) for kind in ("model", "class_means")]


def _open_blob(path: Path) -> object:
    with open_blob(path) as tensors:
        return {name: array.sum() for name, array in tensors.tree().items() if array.dtype != bool}


def _proof(data: bytes) -> object:
    value = "Fedsilo " + base64.urlsafe_b64encode(data).decode().rstrip("=")
    keys = {"silo-north/north": KEY.verify_key}
    return verify_request(value, keys, job="a", method="GET", path="/v1", body=None, now=1e9)


def _sealed_proof() -> bytes:
    value = sign_request(
        KEY, job="a", sender="silo-north/north", method="GET", path="/v1", body=None, now=1e9
    )
    proof = value.partition(" ")[2]
    return base64.urlsafe_b64decode(proof + "=" * (-len(proof) % 4))


def _model_signature(path: Path) -> object:
    document = read_announcement(path).signature
    return ModelSignature.from_dict(document)


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, images=np.zeros((3, 2, 2), np.float32), labels=np.arange(3))
    return file.getvalue()


def _frames(data: bytes) -> object:
    """Frames of one compressed tensor, as they stand in a block that the contract has room for."""
    lengths = np.frombuffer(data[: 4 * _FRAMES].ljust(4 * _FRAMES, b"\0"), np.uint32)
    parts: list[np.ndarray] = [lengths, np.frombuffer(data[4 * _FRAMES :], np.uint8)]
    _ZSTD.check(_COMPRESSED_SPEC, in_memory_parts(parts))
    return _ZSTD.decode(parts, _COMPRESSED_SPEC.shape)


def _compressed_bytes() -> bytes:
    values = np.linspace(-1, 1, _COMPRESSED_SPEC.size, dtype=np.float32)
    return b"".join(part.tobytes() for part in _ZSTD.encode(values))


def _audit(folder: Path) -> None:
    log = AuditLog(folder)
    for number in range(3):
        log.write("departure", task=f"task-{number}", round=number)


def _audit_log() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _audit(Path(folder))
        return (Path(folder) / "log.jsonl").read_bytes()


def _account(path: Path) -> object:
    account = PrivacyLedger(path.parent, path.stem).account(_NOW)
    json.dumps({"lines": account.lines, "jobs": [charge.job for _, charge in account.charges]})
    return account.spending_forecast(2) if len(account.charges) < _FEW_EXAMPLES else account.budget


def _ledger() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ledger = PrivacyLedger(Path(folder), "scans")
        ledger.set_budget(Budget(4.0, 1e-3, 3600), _NOW)
        for number in range(2):
            ledger.charge(Charge("digits", "uid", f"{number:064x}", (Mechanism(2.0),)), _NOW)
        return ledger.path.read_bytes()


def _chained_lines(data: bytes) -> bytes:
    """Lines with a chain that holds, as somebody writes them who may write the file; others are left out."""
    content, previous = b"", GENESIS
    for text in data.split(b"\n"):
        try:
            line = json.loads(text)
            line.pop("hash", None)
            line |= {"seq": content.count(b"\n"), "previous": previous}
            previous = line_digest(line)
            content += text_of(line, previous).encode() + b"\n"
        except (ValueError, AttributeError, TypeError, RecursionError):
            continue
    return content


_NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
_FEW_EXAMPLES = 4  # charges, whose epsilon takes no time
_ARRAYS: dict[str, np.ndarray] = {"weight": np.ones((2, 3), np.float32), "steps": np.array(7, np.int64)}
_TASK = Task("a", "silo-north/north", "task-1", 1, "train", "train", bytes(32), bytes(32))
_BLAKE3 = replace(examples.CONTRACT, algorithm="blake3")
_BLAKE3_TASK = replace(_TASK, blobs=(BlobLink("model", f"blake3-{'ab' * 32}", 8),))
_SIGNATURE = ModelSignature(specs_of(_ARRAYS), classes=2, feature=3).to_dict()
_VECTORS = ROOT / "tests" / "vectors"
_ZSTD = ZstdEncoding(Int8Encoding(16))
_COMPRESSED_SPEC = TensorSpec("w", (900,), "float32")
_FRAMES = 2  # of scales and numbers


def _json(*documents: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(document).encode() for document in documents)


def targets() -> dict[str, Target]:
    """All of them, by name."""
    update = written_bytes(examples.write)
    header = _update_header(update)
    content = update[len(signed_bytes(UPDATE, header)) :]
    in_segments = tuple(path.read_bytes() for path in sorted(_VECTORS.glob("segmented-*.bin"), reverse=True))
    task, proof = seal_task(_TASK, KEY), _sealed_proof()
    found = (
        Target(
            "update",
            _update,
            (Problem,),
            (update, *(path.read_bytes() for path in sorted(_VECTORS.glob("*update*.bin")))),
        ),
        Target(
            "signed update header",
            lambda data: _update(signed_bytes(UPDATE, data) + content),
            (Problem,),
            (header, _update_header(written_bytes(lambda path: examples.write(path, contract=_BLAKE3)))),
        ),
        Target("update in segments", _update_in_segments, (Problem,), in_segments),
        Target(
            "header of segments", _header_in_segments, (Problem,), tuple(map(_update_header, in_segments))
        ),
        Target("task", lambda data: open_task(data, KEY.verify_key), (Problem,), (task,)),
        Target(
            "signed task",
            lambda data: open_task(signed_bytes(TASK, data), KEY.verify_key),
            (Problem,),
            (header_of(TASK, task), header_of(TASK, seal_task(_BLAKE3_TASK, KEY))),
        ),
        Target(
            "envelope",
            lambda data: open_envelope(TASK, signed_bytes(TASK, data), KEY.verify_key),
            (Problem,),
            (header_of(TASK, task), header_of(REQUEST, proof)),
        ),
        Target("proof", _proof, (Problem,), (proof,)),
        Target(
            "signed proof",
            lambda data: _proof(signed_bytes(REQUEST, data)),
            (Problem,),
            (header_of(REQUEST, proof),),
        ),
        Target(
            "tensors",
            in_file(_open_blob),
            (Problem,),
            (
                written_bytes(lambda path: write_tensors(_ARRAYS, path)),
                (_VECTORS / "model.safetensors").read_bytes(),
            ),
        ),
        Target("compressed tensor", _frames, (Problem,), (_compressed_bytes(),)),
        Target(
            "failure report",
            failure_report,
            (Problem,),
            _json({"reason": "DataInvalid", "message": "no such file"}),
        ),
        Target(
            "the trainer's model signature",
            in_file(_model_signature, "signature.json"),
            (PolicyRefused, Problem),
            _json({"signature": _SIGNATURE, "isolation": "no network"}),
        ),
        Target(
            "the trainer's failure",
            in_file(read_failure, "failed.json"),
            (PolicyRefused,),
            _json({"reason": "DataInvalid", "message": "no such file"}),
        ),
        Target(
            "the trainer's reply",
            in_file(lambda path: ReplyMetadata.parse(read_object(path)), "reply.json"),
            (PolicyRefused,),
            _json(
                {"samples": 41, "metrics": {"loss": 0.5}, "support": {"means/0": 41}},
                {
                    "samples": 41,
                    "metrics": {},
                    "support": {},
                    "mechanisms": [Mechanism(1.5, 0.1, 9).to_dict()],
                },
            ),
        ),
        Target(
            "manifest",
            in_file(lambda path: parse_manifest(str(path), read_documents(path))),
            (FedsiloError,),
            _manifests(),
        ),
        Target(
            "npz",
            in_file(lambda path: read_npz(path, NpzConfig(path="input"))),
            (DataInvalid,),
            (_npz(),),
        ),
        Target("audit log", in_file(verify), (AuditBroken,), (_audit_log(),)),
        Target("privacy ledger", in_file(_account, "scans.jsonl"), (AuditBroken,), (_ledger(),)),
        Target(
            "chained lines of a privacy ledger",
            lambda data: in_file(_account, "scans.jsonl")(_chained_lines(data)),
            (AuditBroken,),
            (_ledger(),),
        ),
        Target(
            "file of state",
            in_file(read_with_digest),
            (FileDamaged,),
            (written_bytes(lambda path: write_with_digest(path, {"round": 3, "tasks": ["a"]})),),
        ),
        Target(
            "JSON file",
            in_file(read_json),
            (FileDamaged,),
            (written_bytes(lambda path: write_json(path, {"round": 3, "silos": [1.5, None]})),),
        ),
        Target(
            "provenance", provenance.parse, (FedsiloError,), (provenance.released_files()["provenance.json"],)
        ),
        Target(
            "linked lines of a provenance", provenance.parse_linked, (FedsiloError,), (provenance.lines(),)
        ),
    )
    reopened = (
        Target(name, directory.parse, directory.refusals, (b"",), recipe, DIRECTORY_EXAMPLES)
        for name, directory in directories().items()
    )
    read_as_data = (
        Target(name, in_file(kind.parse), (DataInvalid,), kind.seeds, examples=DATA_FILE_EXAMPLES)
        for name, kind in data_files().items()
    )
    return {target.name: target for target in (*found, *read_as_data, *reopened)}


def _manifests() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / "examples").glob("f*.yaml")))
