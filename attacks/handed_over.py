"""What a stranger hands over: changed copies of an honest job's result, and the commands that open them.

Each command runs in a process of its own, forked from one that has imported what commands compute with. Python tells
there which files it opens, which programs it starts and which addresses it connects to (`sys.addaudithook`, PEP 578).
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from attacks.cost import Cost
from attacks.programs import NotRefusedError
from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError
from tests.federate import federate, job_spec, runners, silo_holding

SECONDS = 30.0
"""In which a command must have answered."""

STARTING = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
"""What Python says when a program is started (the audit events table of its documentation)."""

LOAD_MODEL = "load_model"
"""In place of a command: `fedsilo.load_model`, which has none."""

KEEP_UPDATES = {"keepUpdates": True}
SPEC = job_spec("fedavg", 2, aggregator=KEEP_UPDATES)
"""Specification of the job that hands over honest documents."""


@dataclass(frozen=True)
class CommandOutcome:
    """What a command made of a document.

    :param code: its exit code; None where it did not end in time.
    :param said: all that it printed.
    :param read: every file that it opened.
    :param did: programs that it started, and addresses that it connected to.
    :param foreign: files of the stranger's that were imported as modules.
    :param peak: bytes of memory, of its process.
    """

    code: int | None
    said: str
    read: frozenset[str]
    did: tuple[str, ...]
    foreign: tuple[str, ...]
    processor: float
    peak: int
    seconds: float


class Commands:
    """What the commands of a list cost that are appended to it from now on."""

    def __init__(self, opened: list[CommandOutcome]) -> None:
        self._opened, self._first = opened, len(opened)

    def read(self) -> Cost:
        """Processor time of all together, and the peak of the largest."""
        chosen = self._opened[self._first :]
        return Cost(sum(one.processor for one in chosen), max((one.peak for one in chosen), default=0))

    def seconds(self) -> list[float]:
        """That each has taken."""
        return [one.seconds for one in self._opened[self._first :]]


class HandedOver:
    """What a program changes and has opened.

    :ivar answers: exit codes of the commands, with how often.
    :ivar secret: a file that no document has to do with.
    :ivar canary: a file that the stranger's code writes when it runs.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.answers: Counter[str] = Counter()
        self.secret, self.canary = folder / "secret", folder / "canary"
        self.secret.write_text("of nobody's business\n")
        self._folder, self._numbers = folder, itertools.count(1)
        self._honest = folder / "honest"
        _write(self._honest, SPEC)
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["attacks.handed_over", "fedsilo.local.evaluation"])
        self._opened: list[CommandOutcome] = []
        self.open(
            "validate", "-f", "job.yaml", at=self._honest
        )  # starts the process that all are forked from
        self.answers.clear()

    # --- Attacking.

    def copy(self) -> Path:
        """A directory with an honest result that a program may change.

        `model.safetensors`, `model.json`, `provenance.json` and `kept/` are those of the aggregator; `job.yaml` is its
        manifest, and `s0.npz` and `s1.npz` are the data of its silos.
        """
        return Path(shutil.copytree(self._honest, self._folder / f"stranger-{next(self._numbers)}"))

    def result_of(self, spec: FederatedJobSpec) -> Path:
        """A copy of what another job left, which the stranger has run and signed."""
        directory = self._folder / f"stranger-{next(self._numbers)}"
        _write(directory, spec)
        return directory

    @property
    def planted_code(self) -> str:
        """Python code that leaves a trace when it runs."""
        return f"open({str(self.canary)!r}, 'w').close()\n"

    def edit_json(self, path: Path, change: Callable[[Any], object]) -> None:
        """Change a JSON document in place."""
        document = json.loads(path.read_bytes())
        change(document)
        path.write_text(json.dumps(document))

    def edit_manifest(self, path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the specification of the manifest's job in place."""
        documents = list(yaml.safe_load_all(path.read_text()))
        change(documents[-1]["spec"])
        path.write_text(yaml.safe_dump_all(documents))

    def open(self, *command: str | Path, at: Path) -> CommandOutcome:
        """What a command makes of a document, called in this directory.

        :param command: words of `fedsilo`, or `LOAD_MODEL` and the path of a model.
        """
        answer = self._folder / f"answer-{next(self._numbers)}.json"
        began = time.monotonic()
        process = self._processes.Process(target=_open, args=(list(map(str, command)), str(at), str(answer)))
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        seconds = time.monotonic() - began
        found: dict[str, Any] = json.loads(answer.read_bytes()) if answer.exists() else _empty_answer()
        opened = CommandOutcome(
            **{name: found[name] for name in ("code", "said", "processor", "peak")},
            read=frozenset(found["read"]),
            did=tuple(found["did"]),
            foreign=tuple(found["foreign"]),
            seconds=seconds,
        )
        self._opened.append(opened)
        self.answers[f"{command[0]}: {opened.code}"] += 1
        return opened

    # --- What must happen.

    def expect_opened(self, *command: str | Path, at: Path) -> CommandOutcome:
        """The document is honest: it is opened, without any code of the stranger's.

        :raises NotRefusedError: when it is not.
        """
        opened = self._require_harmless(command, at)
        if opened.code != 0:
            raise NotRefusedError(f"{command[0]} ended with {opened.code}: {opened.said}")
        return opened

    def expect_refused(
        self, words: str, *command: str | Path, at: Path, codes: tuple[int, ...] = (2,)
    ) -> CommandOutcome:
        """The command ends with one of these codes and one line that has these words, and did nothing else.

        :raises NotRefusedError: when it does anything else.
        """
        opened = self._require_harmless(command, at)
        lines = opened.said.splitlines()
        if opened.code not in codes or words not in opened.said or len(lines) != 1:
            raise NotRefusedError(
                f"{command[0]} ended with {opened.code} and {len(lines)} lines: {opened.said}"
            )
        return opened

    def _require_harmless(self, command: tuple[str | Path, ...], at: Path) -> CommandOutcome:
        opened = self.open(*command, at=at)
        what = f"{command[0]} of {at.name}"
        if self.canary.exists():
            raise NotRefusedError(f"{what} ran the stranger's code")
        if opened.code is None:
            raise NotRefusedError(f"{what} did not end within {SECONDS:g} s")
        if "Traceback" in opened.said or opened.code == 1:
            raise NotRefusedError(f"{what} is taken for a defect: {opened.said[-150:]}")
        if opened.foreign or opened.did:
            raise NotRefusedError(f"{what} did {', '.join((*opened.foreign, *opened.did))}")
        if str(self.secret) in opened.read:
            raise NotRefusedError(f"{what} read a file that is not the stranger's")
        return opened

    # --- What it cost.

    def meter(self) -> Commands:
        """What commands cost from now on."""
        return Commands(self._opened)

    def defects(self) -> str:
        """Traces that the stranger's code has left; "" if there are none."""
        return "the stranger's code ran" if self.canary.exists() else ""

    def forget(self) -> None:
        """Remove the traces, so that no other program is blamed for them."""
        self.canary.unlink(missing_ok=True)

    def open_honestly(self) -> None:
        """Every command that opens documents, on the honest ones.

        :raises NotRefusedError: when one of them fails.
        """
        at = self.copy()
        for command in OPENING_COMMANDS:
            self.expect_opened(*command, at=at)


MODEL = "model.safetensors"
OPENING_COMMANDS: tuple[tuple[str, ...], ...] = (
    (LOAD_MODEL, MODEL),
    ("evaluate", "--model", MODEL, "-f", "job.yaml"),
    ("export", "--model", MODEL, "-f", "job.yaml", "--torchscript", "model.pt"),
    ("verify", "."),
    ("verify", ".", "--replay"),
    ("validate", "-f", "job.yaml"),
    ("check", "-f", "job.yaml"),
    ("methods", "fedavg", "-f", "job.yaml"),
)
"""Commands that open documents."""


def _empty_answer() -> dict[str, Any]:
    return {"code": None, "said": "", "read": [], "did": [], "foreign": [], "processor": 0.0, "peak": 0}


def _write(directory: Path, spec: FederatedJobSpec) -> None:
    """What an aggregator leaves, the data of the silos, and the manifest that names them."""
    work = directory.with_name(f"{directory.name}-work")
    work.mkdir()
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    features = (rng.normal(0, 0.3, (40, 6)) + np.eye(6)[labels]).astype(np.float32)
    silos = [silo_holding(work, name, features, labels) for name in ("s0", "s1")]
    federate(work, spec, runners(spec, silos, work))
    shutil.copytree(work / "aggregator", directory)
    documents = []
    for silo in silos:
        name = silo.metadata.name
        shutil.copy(work / f"{name}.npz", directory)
        dataset = {"name": "data", "loader": "npz", "config": {"path": f"{name}.npz"}}
        documents.append(_document("Silo", "silos", name, {"datasets": [dataset]}))
    job = spec.model_dump(by_alias=True, mode="json", exclude_unset=True)
    job["data"]["validationFraction"] = 0.25
    documents.append(_document("FederatedJob", "federation", "honest", job))
    (directory / "job.yaml").write_text(yaml.safe_dump_all(documents))


def _document(kind: str, namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "fedsilo.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _open(command: list[str], at: str, answer: str) -> None:
    """In the process that is attacked."""
    os.chdir(at)
    read: set[str] = set()
    did: list[str] = []

    def record_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            read.add(os.path.realpath(os.fsdecode(arguments[0])))
        elif event in STARTING or event == "socket.connect":
            did.append(f"{event}: {arguments!r:.80}")

    sys.addaudithook(record_event)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = _call(command)
        except BaseException:
            code = 1
            traceback.print_exc()
    used = resource.getrusage(resource.RUSAGE_SELF)
    files = [Path(at, getattr(module, "__file__", None) or "") for module in list(sys.modules.values())]
    found = {
        "code": code,
        "said": said.getvalue(),
        "read": sorted(read),
        "did": did,
        "foreign": [str(file) for file in files if file.is_file() and file.is_relative_to(at)],
        "processor": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss * 1024,
    }
    Path(answer).write_text(json.dumps(found))


def _call(command: list[str]) -> int:
    if command[0] != LOAD_MODEL:
        from fedsilo.cli.main import main

        return main(command)
    from fedsilo import load_model

    try:
        load_model(command[1])
    except FedsiloError as error:
        print(f"fedsilo: {error}")
        return error.exit_code
    return 0
