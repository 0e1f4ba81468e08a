"""What a manifest names of one's own is found by one rule, and what cannot be imported is said in one way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fedsilo.api.python_import import import_own, origin_of
from fedsilo.data.python_loader import call_function
from fedsilo.errors import DataInvalid, FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning.metrics.scores import own_metric
from fedsilo.learning.models import build_model
from fedsilo.learning.own_training import import_trainer
from fedsilo.tasks.registry import bind
from tests.unit.learning.specs import data_spec, model_spec
from tests.unit.tasks.specs import data_of, task_spec

FOUND: Mapping[str, Callable[[str], object]] = {
    "loader": lambda name: call_function(name, {}),
    "spec.task.name": lambda name: bind(task_spec(name), data_of(4, classes=3)),
    "spec.evaluation.metrics": own_metric,
    "spec.model.name": lambda name: build_model(model_spec(name), data_spec(6), seed=0),
    "spec.training.trainer": import_trainer,
}
"""Field -> what imports the name in it."""

MODULE = """def prepare():
    {statement}

prepare()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with paths and modules as they were before at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def imported(name: str) -> object:
    return import_own(name, field="spec.field", remedy="install it")


def test_the_current_directory_is_searched_last(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own_place.py").write_text("value = 'current directory'\n")
    (here / "colorsys.py").write_text("value = 'stands in for a module of Python'\n")
    assert imported("python:own_place:value") == "current directory"
    assert sys.path[-1] == str(here)
    assert imported("python:colorsys:ONE_THIRD") == 1 / 3
    installed = here / "installed"
    installed.mkdir()
    (installed / "own_place.py").write_text("value = 'installed'\n")
    del sys.modules["own_place"]
    monkeypatch.syspath_prepend(installed)
    assert imported("python:own_place:value") == "installed"
    assert sys.path.count(str(here)) == 1


def test_the_root_of_the_file_system_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ManifestInvalid, match="No module named 'proc'"):
        imported("python:proc.self:value")
    assert "/" not in sys.path


def test_a_module_is_found_without_importing_it(here: Path) -> None:
    package = here / "own_package"
    package.mkdir()
    for file in (package / "__init__.py", package / "models.py"):
        file.write_text("raise AssertionError('imported')\n")
    assert origin_of("python:own_package.models:network") == str(package / "models.py")
    assert origin_of("python:own_package:network") == str(package / "__init__.py")
    assert origin_of("python:own_package.models.deeper:network") is None
    assert origin_of("python:own_package.absent:network") is None
    assert origin_of("python:own_absent:network") is None


@pytest.mark.parametrize("field", FOUND)
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("raise SystemExit(0)", "its module raises SystemExit: 0 at {file}:2; correct the module"),
        (
            "raise ValueError",
            "its module raises ValueError without a message at {file}:2; correct the module",
        ),
        (
            "raise ImportError('old ABI')",
            "cannot be imported: old ABI at {file}:2; install its package in the",
        ),
        ("import nowhere", "cannot be imported: No module named 'nowhere' at {file}:2 in "),
    ],
)
def test_a_module_that_fails_is_said_alike(field: str, statement: str, said: str, here: Path) -> None:
    (here / "own_module.py").write_text(MODULE.format(statement=statement))
    name = "python:own_module:value"
    with pytest.raises(FedsiloError) as caught:
        FOUND[field](name)
    line = f"{field}: {name!r}: {said.format(file=here / 'own_module.py')}"
    assert line in str(caught.value)
    raised = said.startswith("its module")
    own: type[FedsiloError] = MethodError if raised else ManifestInvalid
    assert type(caught.value) is (DataInvalid if field == "loader" else own)


@pytest.mark.parametrize("field", FOUND)
def test_what_is_not_there_is_named_with_where_it_was_looked_for(field: str, here: Path) -> None:
    with pytest.raises(FedsiloError) as caught:
        FOUND[field]("python:own_nowhere.models:value")
    message = str(caught.value)
    line = "'python:own_nowhere.models:value': cannot be imported: No module named 'own_nowhere' in "
    assert f"{field}: {line}" in message
    assert message.endswith("put it into the current directory or a folder of PYTHONPATH")
    (here / "own_module.py").write_text("")
    with pytest.raises(FedsiloError) as caught:
        FOUND[field]("python:own_module:valve")
    assert "module 'own_module' has no attribute 'valve'; install its package in the " in str(caught.value)
    assert str(caught.value).endswith(f"or correct the name (the module is {here / 'own_module.py'})")


def test_the_folders_that_were_searched_are_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [sys.path[0], "/opt/packages", str(here)])
    with pytest.raises(
        ManifestInvalid, match=f"in .*/opt/packages and {here}; install it, or, where no image"
    ):
        imported("python:own_nowhere:value")
