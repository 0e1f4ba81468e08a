"""What code of a job sees of the institution's directory from a trainer: its own volume, and the rest read-only."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsilo.institution.directory import SiloDirectory
from fedsilo_agent.trainer.isolation import ISOLATED_MESSAGE, TrainerDirectory, isolate
from tests.namespaces import isolation_permitted

NOBODY, PR_SET_DUMPABLE = 65534, 4


def in_child(user: int, look: Callable[[], Any], folder: Path) -> Any:
    """What a function finds in a process of its own, as that user."""
    found = folder / "found.json"
    found.write_text("")
    found.chmod(0o666)
    report = os.open(found, os.O_WRONLY)
    child = os.fork()
    if child == 0:
        try:
            if user != os.geteuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                # As after an exec by that user; else its own /proc is root's.
                ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            os.write(report, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(report)
    return json.loads(found.read_text())


@pytest.fixture
def directory() -> Any:
    """A silo's directory of the user of the test, with two parts."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = SiloDirectory(root / "silo")
        made.root.mkdir()
        made.prepare()
        for uid in ("one", "other"):
            made.volume(uid).prepare()
            (made.volume(uid).guard / "agent.json").write_text("{}")
        made.key_file.write_text("secret")
        made.silo_file.write_text("policy")
        (made.root / "data").mkdir()
        (made.root / "data" / "images").write_text("data")
        yield made


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_trainer_sees_its_own_volume_and_the_rest_read_only(directory: SiloDirectory, user: int) -> None:
    if not isolation_permitted(user):
        pytest.skip("this system permits no namespaces")
    for path in (directory.root.parent, directory.root, *directory.root.rglob("*")):
        os.chown(path, user, user)
    volume = directory.volume("one")

    def look() -> dict[str, Any]:
        os.chdir(directory.root)
        home = TrainerDirectory(directory.root, directory.agents, volume.root)
        said = isolate(
            [volume.guard, volume.audit, directory.private_directory, directory.logs], volume.inbox, home
        )
        return {
            "said": said,
            "agents": sorted(path.name for path in directory.agents.iterdir()),
            "private": [path.name for path in directory.private_directory.iterdir()],
            "guard": [path.name for path in volume.guard.iterdir()],
            "by another way": attempt(lambda: Path("private/key.pem").read_text()),
            "policy": attempt(lambda: directory.silo_file.write_text("everything")),
            "approvals": attempt(lambda: directory.approvals.write_text("everything")),
            "data": (directory.root / "data" / "images").read_text(),
            "task": attempt(lambda: volume.task.write_text("{}")),
            "reply": attempt(lambda: (volume.drop / "reply").write_text("{}")),
        }

    assert in_child(user, look, directory.root.parent) == {
        "said": ISOLATED_MESSAGE,
        "agents": ["one"],
        "private": [],
        "guard": [],
        "by another way": "FileNotFoundError",
        "policy": "OSError",
        "approvals": "OSError",
        "data": "data",
        "task": "OSError",
        "reply": "",
    }
    assert directory.silo_file.read_text() == "policy"
    assert (volume.drop / "reply").read_text() == "{}", "what it writes in its volume is the volume's"


def attempt(do: Callable[[], object]) -> str:
    """The kind of the failure; empty when there is none."""
    try:
        do()
    except OSError as error:
        return type(error).__name__
    return ""
