"""One federation of real processes, with a fault, from its start to its end."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsilo.files.json_files import write_json
from fedsilo.local.child_processes import FINAL_EXIT_CODES, ForkServerClient
from fedsilo.local.run import AGGREGATOR, GUARD, TRAINER
from fedsilo.local.workdir import RunDirectory
from tests.faults import fault as kinds
from tests.faults.fault import Fault
from tests.faults.injector import Control, flip_bit, kill
from tests.faults.manifests import silos_in
from tests.faults.page_cache import PageCache
from tests.faults.proxy import Proxy
from tests.faults.role import NO_FAULT
from tests.ports import free_port

POLL_SECONDS = 0.01

PATIENCE_SECONDS = 60.0
"""Time after which a run hangs; on an idle machine one takes a second or two."""

LAST_TASK_SECONDS = 3.0
"""Time that guards and trainers get to end after the aggregator, as `fedsilo run` gives them."""

MAX_CRASHES = 4
"""Crashes after which a process will never run again; a fault makes it crash once."""

PORT = 1
"""The aggregator's port in the template, for which each run puts its own."""


@dataclass
class _Part:
    """One process of the federation.

    :ivar code: exit code of its end for good.
    """

    role: str
    program: str
    arguments: Sequence[str]
    pid: int | None = None
    crashes: int = 0
    code: int | None = None


@dataclass(frozen=True)
class EndedRun:
    """How a run ended.

    :ivar trouble: why it did not come to an end.
    :ivar fired: whether the run came by the fault's step.
    :ivar flipped: the names of the file that was damaged.
    :ivar codes: role -> exit code; None where it had to be ended.
    """

    workdir: RunDirectory
    fired: bool
    flipped: tuple[Path, ...]
    codes: Mapping[str, int | None]
    trouble: str | None


@dataclass
class Trial:
    """Runs a federation in a directory of its own.

    :param template: a run's directory, as it is before its processes start.
    :param program: what runs a role.
    :ivar passed: bytes that went over the network, where they go through a proxy.
    """

    server: ForkServerClient
    template: Path
    directory: Path
    fault: Fault | None = None
    program: str = "tests.faults.role"
    passed: int = 0
    _parts: list[_Part] = field(default_factory=list)
    _proxy: Proxy | None = None
    _stopped: bool = False
    _flipped: tuple[Path, ...] = ()

    @property
    def workdir(self) -> RunDirectory:
        return RunDirectory(self.directory / "run")

    @property
    def control(self) -> Control:
        return Control(self.directory / "control")

    def run(self) -> EndedRun:
        """Run the federation from its start to its end; no process is left behind."""
        shutil.copytree(self.template, self.workdir.root)
        self.control.directory.mkdir()
        port = free_port()
        self._connect(port)
        self._parts = self._roles(port)
        fault = self.fault
        if fault is not None and fault.kind == kinds.POWER_CUT:
            machine = fault.place.machine
            PageCache(self._volume(machine), self.control.record(machine))
        try:
            trouble = self._supervise()
        finally:
            self._end_all()
            if self._proxy is not None:
                self.passed = self._proxy.passed
                self._proxy.close()
        codes = {part.role: part.code for part in self._parts}
        return EndedRun(self.workdir, self._faulted_file() is not None, self._flipped, codes, trouble)

    def _connect(self, port: int) -> None:
        """Tell the silos where the aggregator is: directly, or under a name of which the proxy takes care."""
        fault = self.fault
        proxied: Sequence[str] = ()
        if fault is None or fault.kind == kinds.OTHER_ADDRESS:
            proxied, cuts = silos_in(self.workdir), []
        elif fault.kind == kinds.NETWORK_CUT:
            chance = random.Random(fault.seed)
            cuts = [fault.place.occurrence, *(chance.randint(1, 6000) for _ in range(chance.randint(0, 3)))]
            proxied = [fault.place.machine]
        if proxied:
            self._proxy = Proxy(port, cuts)
        for silo in silos_in(self.workdir):
            seen = self._proxy.port if self._proxy is not None and silo in proxied else port
            volume = self.workdir.volume(silo)
            for path in (volume.root / "agent.json", volume.guard / "agent.json"):
                path.write_text(path.read_text().replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{seen}"))

    def _volume(self, machine: str) -> Path:
        return self.workdir.aggregator if machine == "aggregator" else self.workdir.silo(machine)

    def _roles(self, port: int) -> list[_Part]:
        secrets, aggregator = self.workdir.secrets, self.workdir.aggregator
        arguments = ["--config", str(aggregator / "config.json"), "--dir", str(aggregator)]
        arguments += ["--task-key", str(secrets / "task-key.pem"), "--host", "127.0.0.1"]
        arguments += ["--tls-cert", str(secrets / "server.crt"), "--tls-key", str(secrets / "server.key")]
        parts = [_Part("aggregator", AGGREGATOR, [*arguments, "--port", str(port)])]
        for silo in silos_in(self.workdir):
            volume = self.workdir.volume(silo)
            for role, program, documents in (
                ("guard", GUARD, volume.guard),
                ("trainer", TRAINER, volume.root),
            ):
                arguments = ["--agent", str(documents / "agent.json"), "--silo", str(documents / "silo.json")]
                arguments += ["--volume", str(volume.root)]
                arguments += ["--key", str(volume.guard / "key.pem")] if role == "guard" else []
                parts.append(_Part(f"{silo} {role}", program, arguments))
        return parts

    def _supervise(self) -> str | None:
        """Start again what crashes until all have ended; why they did not."""
        until, last = time.monotonic() + PATIENCE_SECONDS, None
        aggregator = self._parts[0]
        while time.monotonic() < until:
            self._note_ends()
            if not self._stopped:
                self._stop_machine()
            for part in self._parts:
                if part.crashes > MAX_CRASHES:
                    return f"{part.role} crashes again and again, see its log"
                # An aggregator that is gone starts no agent again.
                if part.code is None and part.pid is None and aggregator.code is None:
                    self._start(part)
            if all(part.code is not None for part in self._parts):
                return None
            if any(part.code not in (None, 0) for part in self._parts if part is not aggregator):
                return None
            if aggregator.code is not None:
                last = last or time.monotonic() + LAST_TASK_SECONDS
                if time.monotonic() > last:
                    return None
            time.sleep(POLL_SECONDS)
        return f"did not end within {PATIENCE_SECONDS:g} s"

    def _start(self, part: _Part) -> None:
        fault = self.fault
        mine = fault is not None and fault.place.role == part.role and self._faulted_file() is None
        text = fault.to_json() if fault is not None and mine else NO_FAULT
        machine = part.role.partition(" ")[0]
        arguments = [part.role, str(self._volume(machine)), str(self.control.directory), text, part.program]
        log_file = self.workdir.logs / f"{part.role.replace(' ', '-')}.log"
        arguments += [*part.arguments, "--exit-with-parent"]
        part.pid = self.server.start(self.program, arguments, log_file)

    def _note_ends(self) -> None:
        self.server.poll()
        for part in self._parts:
            if part.pid is None or (code := self.server.exit_code(part.pid)) is None:
                continue
            part.pid = None
            if code in FINAL_EXIT_CODES:
                self._note_final(part, code)
                continue
            part.crashes += 1
            if part.role == "aggregator" and self._is(kinds.OTHER_ADDRESS) and self._proxy is not None:
                port = free_port()
                part.arguments = [*part.arguments[:-1], str(port)]
                self._proxy.target = port

    def _note_final(self, part: _Part, code: int) -> None:
        """What `fedsilo run` does: the guard of a trainer that is gone reports that."""
        part.code = code
        silo, _, role = part.role.partition(" ")
        failed = self.workdir.volume(silo).drop / "failed.json"
        if role == "trainer" and code != 0 and not failed.exists():
            write_json(
                failed, {"reason": "TrainerLost", "message": f"the trainer ended with exit code {code}"}
            )

    def _stop_machine(self) -> None:
        """Once the fault has killed one process of a machine: end the others too, and do to its disk what is to be."""
        fault, fired = self.fault, self._faulted_file()
        if fault is None or fault.kind not in kinds.OF_A_MACHINE or fired is None:
            return
        ours = [part for part in self._parts if part.role.partition(" ")[0] == fault.place.machine]
        if any(part.pid is not None and part.role == fault.place.role for part in ours):
            return  # it has just fired and dies
        for part in ours:
            if part.pid is not None:
                kill(part.pid)
        while any(part.pid is not None for part in ours):
            self._note_ends()
            time.sleep(POLL_SECONDS)
        chance = random.Random(fault.seed)
        if fault.kind == kinds.POWER_CUT:
            machine = fault.place.machine
            PageCache(self._volume(machine), self.control.record(machine)).cut(chance, chance.random() < 0.3)
            shutil.rmtree(self.control.record(machine))
        elif fired.exists():
            inode = fired.stat().st_ino
            names = self._volume(fault.place.machine).rglob("*")
            self._flipped = tuple(path for path in names if path.stat().st_ino == inode)
            flip_bit(fired, chance)
        self._stopped = True

    def _faulted_file(self) -> Path | None:
        return Path(self.control.fired_marker.read_text()) if self.control.fired_marker.exists() else None

    def _is(self, kind: str) -> bool:
        return self.fault is not None and self.fault.kind == kind

    def _end_all(self) -> None:
        for part in self._parts:
            if part.pid is not None:
                kill(part.pid)
        while any(part.pid is not None for part in self._parts):
            self.server.poll()
            for part in self._parts:
                if part.pid is not None and self.server.exit_code(part.pid) is not None:
                    part.pid = None
            time.sleep(POLL_SECONDS)
