"""Every change of a durable directory is a step that a test can stop, and none is made past them."""

from __future__ import annotations

import ast
import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedsilo.files import durable
from fedsilo.files.durable import DiskStep
from tests.paths import ROOT

ROLES = [
    *(ROOT / "fedsilo" / part for part in ("engine", "silo", "wire", "local", "methods")),
    ROOT / "aggregator" / "fedsilo_aggregator",
    ROOT / "silo-agent" / "fedsilo_agent",
]
"""What runs as aggregator, guard or trainer, and `fedsilo run` itself."""

NOT_DURABLE = {
    "fedsilo/engine/curves.py": "repaired from the history, never read back",
    "silo-agent/fedsilo_agent/trainer/isolation.py": "writes to /proc, to no disk",
}
"""Files that change what need not survive, and why."""

FUNCTIONS = {
    "os": {
        "fsync",
        "fdatasync",
        "replace",
        "rename",
        "link",
        "symlink",
        "unlink",
        "remove",
        "rmdir",
        "mkdir",
        "makedirs",
        "truncate",
        "ftruncate",
    },
    "shutil": {"rmtree", "move"},
}
METHODS = {
    "unlink",
    "mkdir",
    "rename",
    "hardlink_to",
    "symlink_to",
    "rmdir",
    "touch",
    "truncate",
    "write_text",
    "write_bytes",
}


def past_the_verbs(source: str) -> list[str]:
    """Calls that change files or directories other than by a verb of `fedsilo.files.durable`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, owner = node.func.attr, node.func.value
        module = owner.id if isinstance(owner, ast.Name) else ""
        # A text's `replace` takes two arguments, a path's one.
        renames = name == "replace" and len(node.args) == 1 and not node.keywords
        if name in FUNCTIONS.get(module, ()) or name in METHODS or renames:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize(
    "call",
    [
        "os.fsync(file.fileno())",
        "os.replace(part, path)",
        "part.replace(path)",
        "os.link(part, path)",
        "shutil.rmtree(path)",
        "self._path(task).unlink(missing_ok=True)",
        "directory.mkdir()",
        "file.truncate(3)",
    ],
)
def test_a_change_past_the_verbs_is_recognised(call: str) -> None:
    assert past_the_verbs(call) == [f"line 1: {call}"]


def test_a_text_may_be_replaced() -> None:
    assert past_the_verbs("name.replace('_', ' ')") == []


def test_every_change_of_a_durable_directory_is_a_verb() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for directory in ROLES
        for path in sorted(directory.rglob("*.py"))
        if (calls := past_the_verbs(path.read_text()))
    }
    assert {path: calls for path, calls in found.items() if path not in NOT_DURABLE} == {}
    assert NOT_DURABLE.keys() <= found.keys(), "what is excused no longer needs it"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DiskStep]]:
    """Every step that the test takes."""
    taken: list[DiskStep] = []

    def record(step: DiskStep, perform: Callable[[], None]) -> None:
        perform()
        taken.append(step)

    monkeypatch.setattr(durable, "intercept", record)
    yield taken


def test_a_durable_write_is_these_steps(tmp_path: Path, steps: list[DiskStep]) -> None:
    durable.write_durably(tmp_path / "file", b"content")
    assert [step.operation for step in steps] == ["create", "sync", "rename", "sync-directory"]
    temporary = steps[0].path
    assert steps[1:3] == [DiskStep("sync", temporary), DiskStep("rename", temporary, tmp_path / "file")]
    assert steps[3] == DiskStep("sync-directory", tmp_path)


def test_the_first_line_of_a_file_puts_its_name_on_the_disk(tmp_path: Path, steps: list[DiskStep]) -> None:
    log = tmp_path / "log"
    durable.append_durably(log, "one")
    durable.append_durably(log, "two")
    assert steps == [DiskStep("sync", log), DiskStep("sync-directory", tmp_path), DiskStep("sync", log)]


def test_new_directories_are_on_the_disk_with_those_above(tmp_path: Path, steps: list[DiskStep]) -> None:
    durable.make_directory(tmp_path / "a" / "b")
    durable.make_directory(tmp_path / "a" / "b")
    assert steps == [
        DiskStep("sync-directory", tmp_path.parent),
        DiskStep("make-directory", tmp_path / "a"),
        DiskStep("sync-directory", tmp_path),
        DiskStep("make-directory", tmp_path / "a" / "b"),
        DiskStep("sync-directory", tmp_path / "a"),
        DiskStep("sync-directory", tmp_path / "a"),
    ]


def test_a_directory_with_content_is_on_the_disk_already(tmp_path: Path, steps: list[DiskStep]) -> None:
    durable.make_directory(tmp_path)
    (tmp_path / "file").touch()
    durable.make_directory(tmp_path)
    assert steps == [DiskStep("sync-directory", tmp_path.parent)]


def test_every_other_verb_is_a_step(tmp_path: Path, steps: list[DiskStep]) -> None:
    one, two, tree = tmp_path / "one", tmp_path / "two", tmp_path / "tree"
    tree.mkdir()
    with durable.AppendedFile(one, synced=True) as file:
        file.append(b"123")
        file.append(b"45")
    durable.truncate(one, 2)
    durable.link(one, two)
    durable.unlink(one)
    durable.remove_tree(tree)
    assert two.read_bytes() == b"12" and list(tmp_path.iterdir()) == [two]
    assert steps == [
        DiskStep("append", one),
        DiskStep("append", one),
        DiskStep("truncate", one),
        DiskStep("link", one, two),
        DiskStep("unlink", one),
        DiskStep("remove-tree", tree),
    ]


def test_what_is_missing_is_removed_without_a_step(tmp_path: Path, steps: list[DiskStep]) -> None:
    durable.unlink(tmp_path / "file", missing_ok=True)
    assert steps == []
    with pytest.raises(FileNotFoundError):
        durable.unlink(tmp_path / "file")


def test_a_step_may_fail_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.write_durably(tmp_path / "file", b"before")

    def fail_on_full_disk(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation == "rename":
            raise OSError(errno.ENOSPC, "no space left on device")
        perform()

    monkeypatch.setattr(durable, "intercept", fail_on_full_disk)
    with pytest.raises(OSError, match="no space left"):
        durable.write_durably(tmp_path / "file", b"after")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]
