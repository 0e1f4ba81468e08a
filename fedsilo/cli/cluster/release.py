"""All that a job released, copied into a new directory: model, description, provenance, and updates that it kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fedsilo.cli.cluster.reading import Copy, ReaderPod
from fedsilo.engine.provenance import FILE, ExchangeLine, JobLine, update_files
from fedsilo.errors import ManifestInvalid, Problem, ProvenanceInvalid
from fedsilo.files.durable import rename, sync, sync_directory
from fedsilo.files.plain_files import open_plain
from fedsilo.verification.lines import MAX_JOB_BYTES, ChainLines, most_bytes, names_of_updates, parse_line
from fedsilo.wire import stored_digest

_SAFE_REFERENCE = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to be filled, which has its own name only once that is done without an error.

    :raises ManifestInvalid: when there is something of that name, or no place for it.
    """
    if not target.parent.is_dir():
        raise ManifestInvalid(f"{target.parent}: there is no such directory; make it first")
    part = target.with_name(f"{target.name}.part")
    for path in (target, part):
        if path.exists():
            raise ManifestInvalid(f"{path}: is there already; remove it or name another directory with -o")
    part.mkdir()
    try:
        yield part
        for path in sorted(part.rglob("*"), reverse=True):
            if path.is_dir():
                sync_directory(path)
            else:
                with path.open("r+b") as file:
                    sync(file, path)
        sync_directory(part)
        rename(part, target)
        sync_directory(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy_release(pod: ReaderPod, model: str, kept: bool, others: Sequence[str], part: Path) -> Copy:
    """Copy the job's model and what belongs to it into the directory `part`, and return size and digest of the model's
    file.

    :param model: path of the model in the volume.
    :param kept: whether the job keeps its updates.
    :param others: names of further files beside the model, small ones.
    :raises ProvenanceInvalid: when the provenance cannot be read as far as it names updates.
    :raises Problem: when a kept update is not the one that the provenance names, or was changed below its header.
    """
    beside = PurePosixPath(model)
    for name in ("model.json", *others):
        (part / name).write_bytes(pod.content(str(beside.with_name(name))))
    pod.copy(str(beside.with_name(FILE)), part / FILE)
    for name, digest in (_kept_updates(part / FILE) if kept else {}).items():
        path = part / "kept" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pod.copy(str(beside.with_name("kept") / name), path)
        _require_update(path, name, digest)
    return pod.copy(model, part / "model.safetensors")


def _require_update(path: Path, name: str, digest: str) -> None:
    """Check that a file is the update of this digest, with all of its blocks."""
    again = "nothing was kept: fetch it again, and if it stays so, the volume was changed"
    try:
        found = stored_digest(path)
    except Problem as problem:
        raise Problem(problem.code, f"the update kept/{name}: {problem.detail}; {again}") from problem
    if found != digest:
        text = f"sha256 of the update kept/{name} is {found}, but {FILE} says {digest}; {again}"
        raise Problem("digest-mismatch", text)


def _kept_updates(provenance: Path) -> dict[str, str]:
    """Path of each update below the kept ones -> its digest."""
    found: dict[str, str] = {}
    for number, text in enumerate(_exchange_lines(provenance), start=2):
        where = f"{FILE}: line {number}"
        line = parse_line(where, text, ExchangeLine)
        digests = names_of_updates(where, line)
        for silo, name in update_files(line, tuple(line.updates)).items():
            if not _SAFE_REFERENCE.fullmatch(name):  # it comes from the volume, and becomes a path here
                raise ProvenanceInvalid(
                    f"{where}: kept/{name} is no file of an update; find out who wrote it"
                )
            found[name] = digests[silo]
    return found


def _exchange_lines(provenance: Path) -> Iterator[bytes]:
    """All lines but those of the job and the model."""
    with open_plain(provenance) as file:
        lines = ChainLines(provenance, file)
        job = parse_line(f"{FILE}: line 1", lines.take(MAX_JOB_BYTES) or b"", JobLine)
        while (text := lines.take(most_bytes(len(job.silos)))) is not None and not lines.last:
            yield text
        lines.seal()
