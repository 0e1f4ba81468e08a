"""Every signature, digest and link of a provenance chain, checked in the order in which they were made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from fedsilo.engine.provenance import (
    FIRST_DIGEST,
    ExchangeLine,
    JobLine,
    ModelLine,
    StateDigests,
    sha256_of,
    update_files,
)
from fedsilo.errors import FileDamaged, Problem, ProvenanceInvalid
from fedsilo.files.digests import SHA256, algorithm_of, file_digest, short_digest
from fedsilo.files.durable import translate_read_errors
from fedsilo.files.json_files import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_VALUES, JsonError
from fedsilo.files.json_files import parse_json as parsed_json
from fedsilo.methods.interface import EVALUATE, INITIAL_WEIGHTS, PREPROCESSING, Exchange
from fedsilo.methods.schedule import exchange_id, participants, task_id
from fedsilo.transforms.best_model.selection import BEST
from fedsilo.transforms.secure_sum.steps import continues_with_responders, may_be_passed_over
from fedsilo.verification.job import VerifiedJob, verified_job
from fedsilo.verification.lines import (
    MAX_JOB_BYTES,
    ChainLines,
    decode_base64,
    most_bytes,
    names_of_updates,
    parse_line,
    previous_of,
)
from fedsilo.verification.place import Place
from fedsilo.wire import (
    BlobReader,
    Task,
    UpdateHeader,
    VerifyKey,
    open_chain,
    open_signed_part,
    open_task,
    require_algorithm,
    stored_digest,
    task_digest,
)

T = TypeVar("T")

_DESCRIBED_BYTES, _DESCRIBED_VALUES = 64, 4
"""Most bytes that a description has around what it names of an update or an exchange, and values around an exchange."""

FETCH_AGAIN_REMEDY = "fetch it again, or verify as a user who may read it"
"""What a person can do about a file that cannot be read."""


@dataclass(frozen=True)
class VerifiedExchange:
    """An exchange whose line holds.

    :param where: its file and name, for errors.
    :param tasks: silo -> its task.
    :param digests: silo -> digest of that task, 32 bytes.
    :param completes_round: whether it is the last one of its round.
    """

    where: str
    exchange: Exchange
    line: ExchangeLine
    tasks: Mapping[str, Task]
    digests: Mapping[str, bytes]
    completes_round: bool


@dataclass(frozen=True)
class VerifiedChain:
    """A chain that holds, from the first line to the seal.

    :param start: the state that the job began with.
    :param model: SHA-256 of the model.
    :param kept: updates that lie beside it as they were accepted; None where none are.
    """

    job: VerifiedJob
    start: StateDigests
    exchanges: tuple[VerifiedExchange, ...]
    model: str
    kept: int | None

    @property
    def updates(self) -> int:
        """Number of accepted updates in the chain."""
        return sum(len(exchange.line.updates) for exchange in self.exchanges)

    @property
    def tasks(self) -> int:
        """Number of sealed tasks in the chain."""
        return sum(len(exchange.tasks) for exchange in self.exchanges)


def verify(place: Place, pins: Mapping[str, VerifyKey]) -> VerifiedChain:
    """Check the whole chain, the released files, and the kept updates where there are any.

    :param pins: keys from outside, see `verified_job`.
    :raises ProvenanceInvalid: naming the first thing that is wrong: file, round, silo, what.
    :raises ManifestInvalid: when it cannot be told, see `verified_job`.
    :raises FileDamaged: when a file cannot be read, or something else lies in the place of the kept updates.
    """
    if os.path.lexists(place.kept) and not place.kept.is_dir():
        raise FileDamaged(
            f"{place.kept}: is not a directory; put that of the kept updates there, or remove it"
        )
    with translate_read_errors(place.provenance, FETCH_AGAIN_REMEDY), place.open(place.provenance) as file:
        return _verify_chain(place, ChainLines(place.provenance, file), pins)


def _verify_chain(place: Place, lines: ChainLines, pins: Mapping[str, VerifyKey]) -> VerifiedChain:
    text = lines.take(MAX_JOB_BYTES) or b""
    first = parse_line(f"{place.provenance}: job", text, JobLine)
    if first.previous != FIRST_DIGEST:
        raise ProvenanceInvalid(f"{place.provenance}: job: names a line before it, and is the first")
    most = most_bytes(len(first.silos))
    following = lines.take(most)
    if following is not None and (named := previous_of(following)):
        # Before anything is made of it: a changed specification may name what is not installed here.
        _check_link(f"{place.provenance}: line 2", named, text)
    job = verified_job(place, first, pins)
    _check_initial(f"{place.provenance}: job", job, first.state)
    done: list[VerifiedExchange] = []
    before = first.state
    answered: Collection[str] | None = ()
    for exchange in job.exchanges:
        where = f"{place.provenance}: round {exchange.round} ({exchange_id(exchange)})"
        if following is None or lines.last:
            if _may_end(job, exchange, done):
                break
            raise ProvenanceInvalid(f"{where}: is missing")
        line = parse_line(where, following, ExchangeLine)
        if done and line.exchange != exchange_id(exchange) and may_be_passed_over(exchange):
            answered = None
            continue
        done.append(_exchange(job, exchange, line, where, before, answered))
        answered = line.updates
        _check_link(where, line.previous, text)
        _check_kept(place, done[-1], job)
        before = line.state
        text, following = following, lines.take(most)
    where = f"{place.provenance}: model"
    if following is None or not lines.last:
        problem = "is missing" if following is None else "has lines before it after the job's last exchange"
        raise ProvenanceInvalid(f"{where}: {problem}")
    last = parse_line(where, following, ModelLine)
    _check_link(where, last.previous, text)
    _check_released(place, last, done)
    _check_seal(place, job, following, len(done) + 2, lines.seal())
    kept = sum(len(found.line.updates) for found in done) if place.kept.is_dir() else None
    return VerifiedChain(job, first.state, tuple(done), last.model, kept)


def _check_initial(where: str, job: VerifiedJob, start: StateDigests) -> None:
    """Whether the job began with the weights that its specification names."""
    given = job.spec.model.initial_weights
    if given is not None and (found := start.trees.get(INITIAL_WEIGHTS, "none")) != given.sha256:
        raise ProvenanceInvalid(
            f"{where}: began with initial weights {found[:12]}, but spec.model.initialWeights names {given.sha256[:12]}"
        )


def _exchange(
    job: VerifiedJob,
    exchange: Exchange,
    line: ExchangeLine,
    where: str,
    before: StateDigests,
    answered: Collection[str] | None,
) -> VerifiedExchange:
    """Verify one exchange of the chain.

    :param answered: the silos that answered in the one before; None where that was passed over, as all of them had
        answered it earlier.
    """
    if line.exchange != exchange_id(exchange):
        raise ProvenanceInvalid(f"{where}: is {line.exchange}")
    silos = drawn = participants(job.spec, exchange, tuple(job.silos))
    if answered is not None and continues_with_responders(job.spec, exchange):
        # Of these it may be fewer: a silo whose message did not hold is not asked again.
        silos = tuple(silo for silo in drawn if silo in answered and silo in line.tasks)
    if differing := sorted(set(line.tasks) ^ set(silos)):
        asked = "was not drawn" if differing[0] in line.tasks else "was drawn and not asked"
        raise ProvenanceInvalid(f"{where}: silo {differing[0]} {asked}")
    tasks, digests = {}, {}
    for silo in silos:
        sealed = decode_base64(f"{where}: task of {silo}", line.tasks[silo])
        tasks[silo] = _task(job, exchange, silo, sealed, f"{where}: task of {silo}", before)
        digests[silo] = task_digest(sealed)
    if stranger := next((silo for silo in line.updates if silo not in tasks), None):
        raise ProvenanceInvalid(f"{where}: {stranger} answered and was not asked")
    quorum = job.spec.participation.quorum(len(drawn))
    if len(line.updates) < quorum:
        raise ProvenanceInvalid(f"{where}: has {len(line.updates)} updates; the job needs {quorum}")
    for silo, update in line.updates.items():
        what = f"{where}: update of {silo}"
        data = decode_base64(what, update.signed)
        header = _run_check(what, partial(open_signed_part, data, job.silos[silo]))
        _check_header(what, header, tasks[silo], digests[silo], job.silos[silo], job.spec.digest_algorithm)
    later = job.exchanges[job.exchanges.index(exchange) + 1 :]
    return VerifiedExchange(
        where, exchange, line, tasks, digests, not later or later[0].round > exchange.round
    )


def _task(
    job: VerifiedJob, exchange: Exchange, silo: str, sealed: bytes, what: str, before: StateDigests
) -> Task:
    task = _run_check(what, partial(open_task, sealed, job.key))
    _compare(
        what,
        {
            "job": (task.job, job.uid),
            "silo": (task.silo, silo),
            "task": (task.task, task_id(exchange, silo)),
            "round": (task.round, exchange.round),
            "phase": (task.phase, exchange.phase.name),
            "step": (task.step, exchange.phase.step),
            "specDigest": (task.spec_digest.hex(), job.spec_digest),
        },
    )
    given = job.spec.model.initial_weights
    stated = None if given is None else given.sha256
    _run_check(what, partial(require_algorithm, task, job.spec.digest_algorithm, stated))
    scored, encoded = exchange.phase.step == EVALUATE, job.spec.download.is_encoded
    for link in task.blobs:
        # A model that silos only score, or get in fewer bytes, is made from the state; `replay` makes it again.
        made = scored or (encoded and link.name not in (INITIAL_WEIGHTS, PREPROCESSING))
        if not made and link.digest not in before.trees.values():
            raise ProvenanceInvalid(
                f"{what}: blob {link.name} is {short_digest(link.digest)}, which the state before does not have"
            )
    return task


def _check_header(
    what: str, header: UpdateHeader, task: Task, digest: bytes, key: VerifyKey, algorithm: str
) -> None:
    _compare(
        what,
        {
            "keyId": (header.key_id, key.key_id),
            "job": (header.job, task.job),
            "task": (header.task, task.task),
            "round": (header.round, task.round),
            "sender": (header.sender, task.silo),
            "contract": (header.contract.hex(), task.contract.hex()),
            "taskDigest": (header.task_digest.hex(), digest.hex()),
            "digest": (header.algorithm, algorithm),
        },
    )


def _check_link(where: str, previous: str, text: bytes) -> None:
    digest = sha256_of(text.decode())
    if previous != digest:
        raise ProvenanceInvalid(
            f"{where}: names {previous[:12]} as the line before it, which is {digest[:12]}: one of the two was changed"
        )


def _check_kept(place: Place, found: VerifiedExchange, job: VerifiedJob) -> None:
    if not place.kept.is_dir():
        return
    names = names_of_updates(found.where, found.line)
    for silo, name in update_files(found.line, tuple(job.silos)).items():
        path = place.kept / name
        what = f"{path}: round {found.exchange.round}, silo {silo}"
        with _reading(path, what):
            _check_digest(what, names[silo], _run_check(what, partial(stored_digest, path, place.root)))


def _may_end(job: VerifiedJob, following: Exchange, done: list[VerifiedExchange]) -> bool:
    """Whether the job may have ended early, after these exchanges: at least as many evaluations as it has patience.

    Whether nothing improved in them only their scores tell, of which the chain has none.

    :param following: the exchange that would have come next.
    """
    patience = job.spec.evaluation.patience
    if patience is None or not done or following.round == done[-1].exchange.round:
        return False
    return done[-1].exchange.round // job.spec.evaluation.every >= patience


def _check_released(place: Place, line: ModelLine, done: list[VerifiedExchange]) -> None:
    """The model's line against the files that were released."""
    what = str(place.model)
    with _reading(place.model, what), place.open(place.model) as file:
        # Before so much is read: a file may be larger than any disk, and have no tensors.
        _run_check(what, partial(BlobReader, place.model, file))
        _check_digest(what, line.model, _digest_of(file, SHA256))
        best = done[-1].line.state.trees.get(BEST)
        if best is not None and (found := _digest_of(file, algorithm_of(best))) != best:
            raise ProvenanceInvalid(
                f"{place.provenance}: model: is {short_digest(found)}, but the best one of the state is "
                f"{short_digest(best)}"
            )
    _check_description(place, line, done)


def _check_description(place: Place, line: ModelLine, done: list[VerifiedExchange]) -> None:
    """What the description says of the model and its updates, as far as the chain knows it too."""
    what = str(place.description)
    updates = {
        task_id(found.exchange, silo): name
        for found in done
        for silo, name in names_of_updates(found.where, found.line).items()
    }
    most = MAX_DOCUMENT_BYTES + sum(len(task) + len(name) for task, name in updates.items())
    most += _DESCRIBED_BYTES * (len(updates) + len(done))
    with _reading(place.description, what), place.open(place.description) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ProvenanceInvalid(f"{what}: has more than {most} bytes")
    _check_digest(what, line.description, hashlib.sha256(content).hexdigest())
    try:
        most = MAX_DOCUMENT_VALUES + len(updates) + _DESCRIBED_VALUES * len(done)
        description: dict[str, Any] = parsed_json(content, most)
        said = (
            description["sha256"],
            {task: digest for part in description["updates"] for task, digest in part["digests"].items()},
        )
    except JsonError as wrong:
        raise ProvenanceInvalid(f"{what}: {wrong}") from None
    except (KeyError, TypeError, AttributeError):
        raise ProvenanceInvalid(f"{what}: is no description of a model") from None
    if said != (line.model, updates):
        raise ProvenanceInvalid(f"{what}: names another model or other updates than the chain")


def _check_seal(place: Place, job: VerifiedJob, last: bytes, lines: int, seal: bytes) -> None:
    what = f"{place.provenance}: seal"
    end = _run_check(what, partial(open_chain, seal, job.key))
    _compare(
        what,
        {
            "job": (end.job, job.uid),
            "lines": (end.lines, lines),
            "chain": (end.chain.hex(), sha256_of(last.decode())),
        },
    )


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """A block that reads a file which the chain names."""
    try:
        with translate_read_errors(path, FETCH_AGAIN_REMEDY):
            yield
    except FileNotFoundError:
        raise ProvenanceInvalid(f"{what}: is missing") from None


def _digest_of(file: BufferedReader, algorithm: str) -> str:
    file.seek(0)
    return file_digest(file, algorithm)


def _check_digest(what: str, sha256: str, found: str) -> None:
    if found != sha256:
        raise ProvenanceInvalid(f"{what}: its SHA-256 is {found[:12]}, but the chain says {sha256[:12]}")


def _compare(what: str, fields: Mapping[str, tuple[object, object]]) -> None:
    for name, (found, expected) in fields.items():
        if found != expected:
            raise ProvenanceInvalid(f"{what}: {name} is {found}; must be {expected}")


def _run_check(what: str, check: Callable[[], T]) -> T:
    try:
        return check()
    except Problem as problem:
        raise ProvenanceInvalid(f"{what}: {problem}") from None
