"""What a manifest names of one's own is found by one rule, and what cannot be imported is said in one way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fedsilo.api.python_import import import_user_code, origin_of
from fedsilo.data.python_loader import call_function
from fedsilo.errors import DataInvalid, FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning.custom_training import import_trainer
from fedsilo.learning.metrics.scores import own_metric
from fedsilo.learning.models import build_model
from fedsilo.tasks.registry import bind
from tests.unit.learning.specs import data_spec, model_spec
from tests.unit.tasks.specs import data_of, task_spec

IMPORTS_BY_FIELD: Mapping[str, Callable[[str], object]] = {
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
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with paths and modules as they were before at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def imported_value(name: str) -> object:
    return import_user_code(name, field="spec.field", remedy="install it")


def test_the_current_directory_is_searched_last(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_directory / "own_place.py").write_text("value = 'current directory'\n")
    (working_directory / "colorsys.py").write_text("value = 'stands in for a module of Python'\n")
    assert imported_value("python:own_place:value") == "current directory"
    assert sys.path[-1] == str(working_directory)
    assert imported_value("python:colorsys:ONE_THIRD") == 1 / 3
    installed = working_directory / "installed"
    installed.mkdir()
    (installed / "own_place.py").write_text("value = 'installed'\n")
    del sys.modules["own_place"]
    monkeypatch.syspath_prepend(installed)
    assert imported_value("python:own_place:value") == "installed"
    assert sys.path.count(str(working_directory)) == 1


def test_the_root_of_the_file_system_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ManifestInvalid, match="No module named 'proc'"):
        imported_value("python:proc.self:value")
    assert "/" not in sys.path


def test_a_module_is_found_without_importing_it(working_directory: Path) -> None:
    package = working_directory / "own_package"
    package.mkdir()
    for file in (package / "__init__.py", package / "models.py"):
        file.write_text("raise AssertionError('imported')\n")
    assert origin_of("python:own_package.models:network") == str(package / "models.py")
    assert origin_of("python:own_package:network") == str(package / "__init__.py")
    assert origin_of("python:own_package.models.deeper:network") is None
    assert origin_of("python:own_package.absent:network") is None
    assert origin_of("python:own_absent:network") is None


@pytest.mark.parametrize("field", IMPORTS_BY_FIELD)
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
def test_a_module_that_fails_is_said_alike(
    field: str, statement: str, said: str, working_directory: Path
) -> None:
    (working_directory / "own_module.py").write_text(MODULE.format(statement=statement))
    name = "python:own_module:value"
    with pytest.raises(FedsiloError) as caught:
        IMPORTS_BY_FIELD[field](name)
    line = f"{field}: {name!r}: {said.format(file=working_directory / 'own_module.py')}"
    assert line in str(caught.value)
    raised = said.startswith("its module")
    own: type[FedsiloError] = MethodError if raised else ManifestInvalid
    assert type(caught.value) is (DataInvalid if field == "loader" else own)


@pytest.mark.parametrize("field", IMPORTS_BY_FIELD)
def test_what_is_not_there_is_named_with_where_it_was_looked_for(field: str, working_directory: Path) -> None:
    with pytest.raises(FedsiloError) as caught:
        IMPORTS_BY_FIELD[field]("python:own_nowhere.models:value")
    message = str(caught.value)
    line = "'python:own_nowhere.models:value': cannot be imported: No module named 'own_nowhere' in "
    assert f"{field}: {line}" in message
    assert message.endswith("put it into the current directory or a folder of PYTHONPATH")
    (working_directory / "own_module.py").write_text("")
    with pytest.raises(FedsiloError) as caught:
        IMPORTS_BY_FIELD[field]("python:own_module:valve")
    assert "module 'own_module' has no attribute 'valve'; install its package in the " in str(caught.value)
    assert str(caught.value).endswith(
        f"or correct the name (the module is {working_directory / 'own_module.py'})"
    )


def test_the_folders_that_were_searched_are_named(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [sys.path[0], "/opt/packages", str(working_directory)])
    with pytest.raises(
        ManifestInvalid, match=f"in .*/opt/packages and {working_directory}; install it, or, where no image"
    ):
        imported_value("python:own_nowhere:value")
