"""Fold the kept updates of a verified chain once more, and compare every state and the model byte for byte.

Everything that the aggregator computed is computed again from the specification and the updates: the first state, what
each silo was to be asked, the contract of each update, each fold, and the file of the model. Sums depend on hardware
and build (docs/architecture.md, Determinism): a difference that nobody made shows on another kind of machine. The
files of a public dataset lie where a person says, whatever the document names.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsilo.api.messages import escaped_text
from fedsilo.engine.context import JobContext
from fedsilo.engine.exchange import check_update
from fedsilo.engine.provenance import StateDigests, digests_of, update_files
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FileDamaged, JobFailed, ManifestInvalid, Problem, ProvenanceInvalid
from fedsilo.files.digests import short_digest
from fedsilo.files.durable import require_content
from fedsilo.learning.devices import prepare_torch
from fedsilo.methods.interface import Assignment
from fedsilo.methods.state import State, StoredTree
from fedsilo.transforms.best_model.selection import best_snapshot, with_best
from fedsilo.transforms.transform import Signers
from fedsilo.updates.round_updates import StoredUpdates
from fedsilo.verification.chain import FETCH_AGAIN_REMEDY, VerifiedChain, VerifiedExchange
from fedsilo.verification.job import VerifiedJob
from fedsilo.verification.lines import names_of_updates
from fedsilo.verification.place import Place
from fedsilo.wire import BlobRef, ExpectedUpdate, write_tensors

OTHER_MACHINE = (
    "the same bytes come only from the same kind of hardware and the same build of fedsilo's libraries"
)


def replay(place: Place, chain: VerifiedChain, data: Path | None = None) -> None:
    """Fold every exchange again.

    :param chain: what `verify` found for this place.
    :param data: directory of the files of the job's public dataset.
    :raises ManifestInvalid: when the specification names files that are not there, see `public_dataset`.
    :raises ImportNotAllowed: when it names code that nobody has allowed.
    :raises ProvenanceInvalid: naming the first difference, or the first update that is not there.
    :raises MethodError: when the method's server half fails.
    """
    job = chain.job
    prepare_torch(job.spec.training.threads)
    public = public_dataset(place, job, data)
    context = JobContext.of(job.method, tuple(job.silos), _initial_weights(place, job), public=public)
    workflow = Workflow(job.method, context, signers=Signers(job.uid, job.silos))
    with tempfile.TemporaryDirectory(prefix="fedsilo-replay-") as folder:
        blobs = Path(folder)
        state = workflow.stored_state(workflow.start(), blobs)
        _compare_state(f"{place.provenance}: job", digests_of(state), chain.start)
        for found in chain.exchanges:
            state = _ReplayedExchange(job, workflow, found, place.kept).fold(state, blobs)
            _drop_all_but(state, blobs)
        snapshot = best_snapshot(state) or workflow.model.snapshot(state)
        model = write_tensors(snapshot.tree, blobs / "model.safetensors")
        if model.digest != chain.model:
            raise ProvenanceInvalid(
                f"{place.model}: its SHA-256 is {chain.model[:12]}, but the last state gives {model.digest[:12]}; "
                f"{OTHER_MACHINE}"
            )


def _initial_weights(place: Place, job: VerifiedJob) -> StoredTree | None:
    """The initial weights that the job was given, which the aggregator keeps as a blob."""
    given = job.spec.model.initial_weights
    if given is None:
        return None
    path = place.kept.parent / "blobs" / given.sha256
    try:
        remedy = "put the file of spec.model.initialWeights there"
        require_content(path, given.sha256, remedy, place.root)
    except FileDamaged as damage:
        raise ProvenanceInvalid(str(damage)) from None
    return StoredTree(BlobRef(given.sha256, path.stat().st_size), path)


class _ReplayedExchange:
    """One exchange of a chain."""

    def __init__(self, job: VerifiedJob, workflow: Workflow, found: VerifiedExchange, kept: Path) -> None:
        self._job, self._workflow, self._found, self._kept = job, workflow, found, kept

    def fold(self, state: State, blobs: Path) -> State:
        """State after the exchange."""
        found, exchange = self._found, self._found.exchange
        assigned = self._workflow.assign(state, exchange, tuple(found.tasks))
        broadcast = replace(assigned, state=self._workflow.stored_state(assigned.state, blobs))
        trees, assignments = broadcast.state.refs(), broadcast.tasks
        for silo in found.tasks:
            self._check_task(silo, assignments[silo], trees)
        paths = {
            silo: self._kept / name for silo, name in update_files(found.line, tuple(self._job.silos)).items()
        }
        for silo, path in paths.items():
            self._check_update(silo, path, assignments[silo])
        try:
            after, _ = self._workflow.fold(state, exchange, StoredUpdates(paths), broadcast)
        except JobFailed as failed:  # no job goes on, and none has a line, after a sum that does not hold
            raise ProvenanceInvalid(f"{found.where}: its updates fold to nothing: {failed}") from None
        after = self._with_best_model(self._workflow.stored_state(after, blobs), blobs)
        _compare_state(found.where, digests_of(after), found.line.state)
        return after

    def _with_best_model(self, after: State, blobs: Path) -> State:
        """The state with its model as the best one, where the chain says so.

        That it was the best is known from its scores, which cannot be computed without the data. That the one which the
        chain names is a round's own model, and of which round, is checked here.
        """
        if self._workflow.spec.evaluation.best is None or not self._found.completes_round:
            return after
        best = with_best(after, self._found.exchange.round, self._workflow.model.snapshot(after))
        best = self._workflow.stored_state(best, blobs)
        return best if digests_of(best) == self._found.line.state else after

    def _check_task(self, silo: str, assignment: Assignment, trees: Mapping[str, BlobRef]) -> None:
        """What the silo was asked is what the method asks in this state."""
        task, what = self._found.tasks[silo], f"{self._found.where}: task of {silo}"
        blobs = {name: trees[tree].digest for name, tree in assignment.trees.items()}
        sent = {link.name: link.digest for link in task.blobs}
        if sent != blobs:
            raise ProvenanceInvalid(f"{what}: sends {sent}, but the method sends {blobs}; {OTHER_MACHINE}")
        if task.settings != dict(assignment.settings):
            raise ProvenanceInvalid(
                f"{what}: has settings {task.settings}, but the method gives {dict(assignment.settings)}"
            )
        contract = self._workflow.contract(task.step, assignment.settings).digest()
        if task.contract.hex() != contract:
            raise ProvenanceInvalid(
                f"{what}: contract is {task.contract.hex()[:12]}, but the job's is {contract[:12]}"
            )

    def _check_update(self, silo: str, path: Path, assignment: Assignment) -> None:
        """The update passes every check of its arrival, down to the values of its blocks."""
        found, what = self._found, f"{path}: round {self._found.exchange.round}, silo {silo}"
        task = found.tasks[silo]
        expected = ExpectedUpdate(
            job=self._job.uid,
            task=task.task,
            round=task.round,
            sender=silo,
            contract=self._workflow.contract(task.step, assignment.settings),
            task_digest=found.digests[silo],
        )
        try:
            digest = check_update(path, expected, self._job.silos[silo]).digest
        except FileNotFoundError:
            raise ProvenanceInvalid(
                f"{what}: is missing; updates are kept where spec.aggregator.keepUpdates is true"
            ) from None
        except OSError as error:
            raise ProvenanceInvalid(
                f"{what}: cannot be read ({error.strerror}); {FETCH_AGAIN_REMEDY}"
            ) from None
        except Problem as problem:
            raise ProvenanceInvalid(f"{what}: {problem}") from None
        if digest != names_of_updates(found.where, found.line)[silo]:
            raise ProvenanceInvalid(f"{what}: its digest is {digest[:12]}, not that of the chain")


def _compare_state(where: str, found: StateDigests, said: StateDigests) -> None:
    """Name the first tree that differs, or the values."""
    for name in sorted(found.trees.keys() | said.trees.keys()):
        ours, theirs = found.trees.get(name, "none"), said.trees.get(name, "none")
        if ours != theirs:
            raise ProvenanceInvalid(
                f"{where}: state: tree {escaped_text(name)} is {short_digest(theirs)}, but folding gives "
                f"{short_digest(ours)}; {OTHER_MACHINE}"
            )
    if found.values != said.values:
        raise ProvenanceInvalid(f"{where}: state: its values are not those that folding gives")


def _drop_all_but(state: State, blobs: Path) -> None:
    keep = {ref.digest for ref in state.refs().values()}
    for path in blobs.iterdir():
        if path.name not in keep:
            path.unlink()


OPTION = "--data"

WITHOUT_FILES = ("sklearn:", "python:")
"""How loaders begin that read what is installed, or run code that a person has allowed."""


def public_dataset(place: Place, job: VerifiedJob, folder: Path | None) -> PublicDataset | None:
    """The public dataset of a job, read from files below a folder; None where its method reads none.

    :raises ManifestInvalid: when the specification has no such dataset, names a place outside of the folder, or a
        download, or no folder is given.
    """
    if job.method.public_data is None:
        return None
    name = job.spec.aggregation.public_dataset
    what = f"{place.provenance}: spec.aggregation.publicDataset: {'null' if name is None else name}"
    held = next((dataset for dataset in job.spec.aggregator.datasets if dataset.name == name), None)
    if held is None:
        raise ManifestInvalid(
            f"{what}: is not among spec.aggregator.datasets, and method {job.method.name} learns from it; no such job "
            "can have run: ask whoever handed the chain over"
        )
    if held.loader.startswith(WITHOUT_FILES):
        return PublicDataset.of(job.method, Path())
    if folder is None:
        raise ManifestInvalid(
            f"{what}: is read from files; name the directory that they lie in with {OPTION} DIR"
        )
    if held.config.get("download"):
        raise ManifestInvalid(f"{what}: would be downloaded; a document alone lets nothing be fetched")
    root = folder.resolve()
    for text in _texts(held.config):
        if "\0" in text or not (root / text).resolve().is_relative_to(root):
            raise ManifestInvalid(
                f"{what}: {text!r}: lies outside of {folder}; name the directory with all its files with {OPTION}"
            )
    return PublicDataset.of(job.method, root)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a configuration, for any of them may be a path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
