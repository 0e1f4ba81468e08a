"""The institution finds its silo's own model in the silo's storage: the acknowledged one, whole, and to be opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.files.json_files import write_with_digest
from fedsilo.learning.models import to_tree
from fedsilo.learning.saved import load_model
from fedsilo.methods.interface import PERSONAL_TREE, Reply
from fedsilo.methods.state import State, Tree
from fedsilo.silo.personal import PersonalModel
from fedsilo.silo.runner import TaskRunner
from fedsilo.silo.volume import Volume
from fedsilo_agent.trainer.mailbox import Mailbox
from tests.federate import job_spec, runners, skewed_silos


def scene(directory: Path, method: str = "map") -> tuple[Volume, Mailbox, PersonalModel, Tree]:
    spec = job_spec(method, ["a"])
    (runner,) = runners(spec, skewed_silos(directory, {"a": [0, 1]}), directory).values()
    assert isinstance(runner, TaskRunner)
    volume = Volume(directory / "volume")
    volume.prepare()
    personal = PersonalModel(volume.state, runner.method, runner.context.silo)
    return volume, Mailbox(volume, ()), personal, runner.context.initial_model()


def answer(mailbox: Mailbox, volume: Volume, task: str, tree: Tree, acknowledged: str | None) -> None:
    """A reply with this private model; then the guard names the last acknowledged task."""
    mailbox.deliver(task, Reply(private=State({PERSONAL_TREE: tree})), State())
    write_with_digest(volume.task, {"task": "next", "step": "train", "acknowledged": acknowledged})


def files(volume: Volume) -> list[str]:
    return sorted(path.name for path in volume.state.iterdir() if path.is_file())


def test_only_what_was_acknowledged_is_there_and_it_can_be_opened(tmp_path: Path) -> None:
    volume, mailbox, personal, tree = scene(tmp_path)
    answer(mailbox, volume, "r1", tree, None)
    personal.publish(mailbox.acknowledged_state())
    assert files(volume) == []
    for task, offset in (("r1", 0), ("r2", 1)):
        wanted = {name: array + np.float32(offset) for name, array in tree.items()}
        answer(mailbox, volume, task, wanted, task)
        personal.publish(mailbox.acknowledged_state())
        assert files(volume) == ["personal.json", "personal.safetensors"]
        found = to_tree(load_model(volume.state / "personal.safetensors"))
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


def test_the_model_outlives_the_private_state_it_came_from(tmp_path: Path) -> None:
    volume, mailbox, personal, tree = scene(tmp_path)
    answer(mailbox, volume, "r1", tree, "r1")
    personal.publish(mailbox.acknowledged_state())
    write_with_digest(volume.task, {"task": "r2", "step": "train", "acknowledged": "r2"})
    assert not mailbox.acknowledged_state().trees
    personal.publish(mailbox.acknowledged_state())
    load_model(volume.state / "personal.safetensors")


def test_one_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    volume, mailbox, personal, tree = scene(tmp_path)
    answer(mailbox, volume, "r1", tree, "r1")
    personal.publish(mailbox.acknowledged_state())
    (volume.state / "personal.safetensors").unlink()
    personal.publish(mailbox.acknowledged_state())
    load_model(volume.state / "personal.safetensors")


def test_one_that_a_restart_finds_damaged_is_written_again(tmp_path: Path) -> None:
    volume, mailbox, personal, tree = scene(tmp_path)
    answer(mailbox, volume, "r1", tree, "r1")
    personal.publish(mailbox.acknowledged_state())
    path = volume.state / "personal.safetensors"
    written = path.read_bytes()
    path.unlink()  # it has a second name, that of the private state
    path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    PersonalModel(volume.state, personal.method, personal.silo).publish(mailbox.acknowledged_state())
    assert path.read_bytes() == written


def test_a_method_without_models_of_the_silos_own_leaves_nothing(tmp_path: Path) -> None:
    volume, mailbox, personal, tree = scene(tmp_path, "fedavg")
    answer(mailbox, volume, "r1", tree, "r1")
    personal.publish(mailbox.acknowledged_state())
    assert files(volume) == []


def test_a_volume_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    volume, mailbox, personal, tree = scene(tmp_path)
    answer(mailbox, volume, "r1", tree, "r1")

    def fail_on_full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", fail_on_full_disk)
    personal.publish(mailbox.acknowledged_state())
    assert "personal.safetensors was not written" in caplog.text
    assert files(volume) == []
