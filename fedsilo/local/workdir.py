"""The directory of a local run: whose it is, that only one run uses it, and what each process finds in it.

run.json                 the job's uid and specification
lock                     held while a run is alive; its process id
processes.json           process ids of the run
lost-silos.json          silos whose guard has ended for good, and why, for the aggregator
aggregator/              the aggregator's directory
aggregator-secrets/      its keys and certificate
silos/<name>/            one silo: what its guard and trainer share, and its audit log
logs/                    output of each process
model.safetensors, model.json, MODEL_CARD.md, history.jsonl, curves.tfevents, provenance.json      the result
scores.csv               each silo's scores in each evaluation, where all silos permit them by name
checkpoints/             models of some rounds, where the job keeps them
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedsilo.api.agent import FrozenJob, Member, SiloAgent, SiloAgentSpec, TrustBundle
from fedsilo.api.common import Metadata, ObjectRef
from fedsilo.api.digest import spec_digest
from fedsilo.api.loading import JobManifest
from fedsilo.api.scores import score_rows
from fedsilo.api.silo import Silo
from fedsilo.errors import WorkdirConflict
from fedsilo.files.durable import (
    make_directory,
    make_own_directory,
    publish,
    remove,
    temporary_file,
    write_durably,
)
from fedsilo.files.json_files import read_with_digest, write_json, write_with_digest
from fedsilo.files.locking import NAME as LOCK_FILE
from fedsilo.files.locking import DirectoryLock
from fedsilo.local.csv_rows import csv_bytes
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.outcome import clear_outcome
from fedsilo.silo.volume import Volume
from fedsilo.wire import SigningKey

RESULTS = (
    "model.safetensors",
    "model.json",
    "MODEL_CARD.md",
    "history.jsonl",
    "curves.tfevents",
    "provenance.json",
)

SCORES = "scores.csv"
"""File with each silo's scores."""

CHECKPOINTS = "checkpoints"
"""Folder of the models that a job keeps by the way, in the aggregator's directory as in that of the run."""

RESTORE_RUN = "put it back from a copy, or begin again in another directory with --workdir"
"""What can be done about a damaged `run.json`."""


def default_directory(name: str) -> Path:
    """The directory of a run that was given none, by the job's name."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


@dataclass(frozen=True)
class RunDirectory:
    """Paths of a local run."""

    root: Path

    @property
    def aggregator(self) -> Path:
        """The aggregator's durable directory."""
        return self.root / "aggregator"

    @property
    def secrets(self) -> Path:
        """The aggregator's keys and certificate."""
        return self.root / "aggregator-secrets"

    @property
    def logs(self) -> Path:
        """Output of each process."""
        return self.root / "logs"

    @property
    def lost_silos(self) -> Path:
        """Which silos' guards have ended for good, and why."""
        return self.root / "lost-silos.json"

    def silo(self, name: str) -> Path:
        """Directory of one silo."""
        return self.root / "silos" / name

    def volume(self, name: str) -> Volume:
        """What guard and trainer of a silo share."""
        return Volume(self.silo(name))

    def ledgers(self, name: str) -> Path:
        """Where a silo's guard keeps its privacy budgets, of this run alone."""
        return self.volume(name).guard / "ledgers"

    @contextmanager
    def hold_directory(
        self, federation: JobManifest, resume: bool, space: DiskSpaceCheck, in_process: bool = False
    ) -> Iterator[str]:
        """Hold the directory for this job against any other run; the job's uid.

        :param space: awaited where the disk is full.
        :param in_process: what the run holds is gone with its process, so that the directory can never be resumed.
        :raises WorkdirConflict: when it holds something else, a run that is not to be resumed or one that goes on;
            nothing in it was changed then.
        """
        self._refuse_foreign_directory(resume)
        space.wait(lambda: make_directory(self.root))
        with space.wait(lambda: DirectoryLock(self.root)) as lock:
            if not lock.acquire():
                raise WorkdirConflict(
                    f"{self.root}: another run (process {lock.holder or 'unknown'}) is using it; "
                    "wait for its end or name another directory with --workdir"
                )
            uid = space.wait(lambda: self._uid(federation, resume, in_process))
            space.wait(lambda: lock.write_holder(str(os.getpid())))
            yield uid

    def _refuse_foreign_directory(self, resume: bool) -> None:
        """Refuse a directory that is not a run's before anything, even the lock, is created in it."""
        if self.root.exists() and not self.root.is_dir():
            raise WorkdirConflict(f"{self.root}: is not a directory; name another with --workdir")
        if (self.root / "run.json").exists():
            return
        if resume:
            raise WorkdirConflict(f"{self.root}: holds no run to resume; leave out --resume to begin one")
        names = sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []
        strangers = [name for name in names if name != LOCK_FILE]
        if strangers:
            raise WorkdirConflict(
                f"{self.root}: is not empty ({strangers[0]}) and holds no run; name an empty directory with --workdir"
            )

    def _uid(self, federation: JobManifest, resume: bool, in_process: bool) -> str:
        digest, job = spec_digest(federation.job), str(federation.job)
        found = read_with_digest(self.root / "run.json", RESTORE_RUN)
        if found is None:
            uid = str(uuid.uuid4())
            mine = {"job": job, "uid": uid, "specDigest": digest, "inProcess": in_process}
            write_with_digest(self.root / "run.json", mine)
            return uid
        if found.get("inProcess"):
            raise WorkdirConflict(
                f"{self.root}: holds a run in one process, which cannot be resumed; name another directory with "
                "--workdir"
            )
        if found["specDigest"] != digest or found["job"] != job:
            raise WorkdirConflict(
                f"{self.root}: belongs to job {found['job']} with specification {found['specDigest'][:12]}, not to "
                f"{job} with {digest[:12]}; name another directory with --workdir"
            )
        if not resume:
            raise WorkdirConflict(
                f"{self.root}: holds a run of this job already; add --resume to go on with it, or name another "
                "directory with --workdir"
            )
        return str(found["uid"])

    def write_inputs(self, federation: JobManifest, uid: str, port: int) -> None:
        """Write what each process needs: keys where there are none, the job, the trust between both sides."""
        from fedsilo.wire import issue_server, make_authority

        for directory in (self.aggregator, self.secrets, self.logs):
            make_own_directory(directory)
        self.secrets.chmod(0o700)
        if self.lost_silos.exists():
            remove(self.lost_silos)  # their guards are tried again
        authority = make_authority()
        certificate, key = issue_server(authority, ["localhost", "127.0.0.1"])
        write_durably(self.secrets / "server.crt", certificate)
        write_durably(self.secrets / "server.key", key)
        task_key = _key(self.secrets / "task-key.pem")
        public_keys = {}
        for silo in federation.silos:
            volume = self.volume(silo.metadata.name)
            volume.prepare()
            volume.guard.chmod(0o700)
            clear_outcome(volume)
            public_keys[str(silo)] = _key(volume.guard / "key.pem").verify_key.to_text()
        members = None
        if federation.job.spec.aggregation.secure:
            members = tuple(Member(silo=silo, public_key=key) for silo, key in public_keys.items())
        silos = []
        for silo in federation.silos:
            volume, public_key = self.volume(silo.metadata.name), public_keys[str(silo)]
            trust = TrustBundle(
                url=f"https://127.0.0.1:{port}",
                ca_certificate=authority.cert_pem.decode(),
                task_key=task_key.verify_key.to_text(),
                public_key=public_key,
                members=members,
            )
            # A copy for each: the trainer can change what it can see.
            for directory in (volume.root, volume.guard):
                write_json(directory / "agent.json", _plain_document(_agent(federation, silo, uid, trust)))
                write_json(directory / "silo.json", _plain_document(silo))
            silos.append(
                {"namespace": silo.metadata.namespace, "name": silo.metadata.name, "publicKey": public_key}
            )
        job = federation.job.model_copy(
            update={"metadata": federation.job.metadata.model_copy(update={"uid": uid})}
        )
        write_json(self.aggregator / "config.json", {"job": _plain_document(job), "silos": silos})

    def write_scores(self, rounds: Sequence[Mapping[str, Any]]) -> None:
        """Write each silo's scores in each evaluation as a CSV file, where all silos permit them by name."""
        if rows := list(score_rows(rounds)):
            write_durably(self.root / SCORES, csv_bytes(rows))

    def collect(self) -> None:
        """Put the result where the user looks for it: each file whole, or as it was."""
        kept = self.aggregator / CHECKPOINTS
        checkpoints = [f"{CHECKPOINTS}/{path.name}" for path in sorted(kept.glob("round-*"))]
        if checkpoints:
            make_directory(self.root / CHECKPOINTS)
        for name in (*RESULTS, *checkpoints):
            if (self.aggregator / name).is_file():
                path = self.root / name
                with temporary_file(path.parent) as (file, temporary):
                    shutil.copyfile(self.aggregator / name, temporary)
                    publish(file, temporary, path)


def _key(path: Path) -> SigningKey:
    if not os.path.lexists(path):
        SigningKey.generate().save(path)
    return SigningKey.load(path)


def _agent(federation: JobManifest, silo: Silo, uid: str, trust: TrustBundle) -> SiloAgent:
    job = federation.job
    frozen = FrozenJob(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=uid,
        spec_digest=spec_digest(job),
        spec=job.spec,
    )
    reference = ObjectRef(namespace=silo.metadata.namespace, name=silo.metadata.name)
    metadata = Metadata(name=job.metadata.name, namespace=silo.metadata.namespace)
    return SiloAgent(metadata=metadata, spec=SiloAgentSpec(job=frozen, silo=reference, trust=trust))


def _plain_document(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
