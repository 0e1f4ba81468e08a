"""A silo on a machine without Kubernetes, which has joined the hub: `fedsilo silo serve` over its directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml

from fedsilo.api.silo_status import HubAddress
from fedsilo.files.json_files import read_json, write_with_digest
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.local.workdir import RunDirectory
from fedsilo.wire import SigningKey
from tests.recovery.supervisor import Part, Supervisor

SERVE = "fedsilo.cli.main"


class Machine:
    """One silo of a run, in a directory of its own in place of the one that `fedsilo run` would give it."""

    def __init__(self, root: Path, workdir: RunDirectory, silo: str) -> None:
        self.silo = silo
        self.directory = SiloDirectory(root)
        self._workdir = workdir

    def join(self, hub: HubAddress) -> Part:
        """The directory as `fedsilo silo join` leaves it and its people fill it in; the process that serves it."""
        volume = self._workdir.volume(self.silo)
        self.directory.prepare()
        shutil.copy(volume.guard / "key.pem", self.directory.key_file)
        self.directory.key_file.chmod(0o600)
        silo = json.loads((volume.guard / "silo.json").read_text())
        self.directory.silo_file.write_text(yaml.safe_dump(silo))
        name = f"{silo['metadata']['namespace']}/{self.silo}"
        write_with_digest(self.directory.hub_version_file, {"version": 0})
        public_key = SigningKey.load(self.directory.key_file).verify_key.to_text()
        self.directory.write_membership(SiloIdentity(name, hub, "0" * 64, public_key))
        arguments = ["silo", "serve", "--dir", str(self.directory.root)]
        return Part(f"{self.silo}-serve", SERVE, arguments, endless=True)

    @property
    def finished(self) -> bool:
        """Whether the silo has done its part in the job."""
        records = [read_json(path) for path in self.directory.agents.glob("*/record.json")]
        return bool(records) and all(record["status"].get("phase") == "Finished" for record in records)

    def reached(self) -> bool | None:
        """What it says of the hub; None before it has asked."""
        shown = read_json(self.directory.serving)
        return None if shown is None or shown["hub"] is None else bool(shown["hub"]["reached"])

    def look(self, supervisor: Supervisor) -> None:
        """Do nothing, because the serving process starts guard and trainer itself."""

    def show(self) -> None:
        """Put the volume and the logs where those of another run are, to be compared."""
        agent = next(self.directory.agents.iterdir(), None)
        if agent is None:
            return  # it has never begun, which is why the run has failed
        shutil.rmtree(self._workdir.silo(self.silo))
        (agent / "volume").rename(self._workdir.silo(self.silo))
        for log in self.directory.logs.iterdir():
            shutil.copy(log, self._workdir.logs / f"{self.silo}-{log.name}")
