"""A document that is only looked at has nothing imported but what a person has named, too."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from fedsilo.api.allowed_imports import looking_at, running
from fedsilo.api.python_import import import_user_code
from fedsilo.cli import methods
from fedsilo.cli.main import main
from fedsilo.errors import ImportNotAllowed, ManifestInvalid, MethodError
from fedsilo.methods import registry
from hack import method_pages

OWN_IMPORT = "python:own_place:value"


@pytest.fixture(autouse=True)
def foreign_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with modules of a stranger's, on no path of Python's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for name in ("own_place", "own_place_too"):
        (tmp_path / f"{name}.py").write_text(f"open({name!r}, 'w').close()\nvalue = other = 1\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def imported_value(name: str = OWN_IMPORT) -> object:
    return import_user_code(name, field="spec.field", remedy="install it")


def ran(here: Path) -> list[str]:
    return sorted(path.name for path in here.iterdir() if not path.suffix and path.is_file())


@pytest.mark.parametrize(
    "allowed",
    [
        (),
        ("own_place_too",),
        ("own",),
        ("own_place:other",),
        ("own_place.value",),
        ("own_place.value:value",),
        ("own_place_too:value", "own_place:other"),
    ],
)
def test_what_nobody_has_allowed_is_not_imported(allowed: tuple[str, ...], foreign_directory: Path) -> None:
    with looking_at("model.json", allowed), pytest.raises(ImportNotAllowed) as refused:
        imported_value()
    assert str(refused.value) == (
        f"model.json: spec.field: '{OWN_IMPORT}': would run own_place:value, of {foreign_directory / 'own_place.py'}; "
        "a document alone lets nothing run: if you trust this one, add --allow-import own_place:value (in Python "
        "allow_imports=['own_place:value'])"
    )
    assert ran(foreign_directory) == []
    assert str(foreign_directory) not in sys.path


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", "fedsilo.data.shipped:np", "own_nowhere:value"]
)
def test_neither_python_nor_fedsilo_itself_is_an_exception(name: str) -> None:
    with looking_at("model.json"), pytest.raises(ImportNotAllowed, match=f"add --allow-import {name} "):
        imported_value(f"python:{name}")


def test_the_loaders_of_shipped_data_need_no_permission() -> None:
    with looking_at("job.yaml"):
        assert callable(imported_value("python:fedsilo.data.shipped:diabetes"))


@pytest.mark.parametrize("allowed", ["own_place", "own_place:value", OWN_IMPORT])
def test_what_a_person_has_allowed_is_imported_and_said_once(
    allowed: str, foreign_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with looking_at("model.json", [allowed]):
        assert [imported_value(), imported_value()] == [1, 1]
    assert caplog.messages == [
        f"model.json: spec.field: '{OWN_IMPORT}': imports own_place:value, of {foreign_directory / 'own_place.py'}"
    ]
    assert ran(foreign_directory) == ["own_place"]


def test_a_package_stands_for_all_that_is_below_it(foreign_directory: Path) -> None:
    package = foreign_directory / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text("network = 2\n")
    with looking_at("model.json", ["own_package"]):
        assert imported_value("python:own_package.models:network") == 2


def test_nothing_else_of_the_current_directory_is_found(foreign_directory: Path) -> None:
    """An allowed module does not bring its neighbours, nor what libraries look for and do without."""
    (foreign_directory / "own_place.py").write_text(
        "try:\n    import own_place_too\nexcept ImportError:\n    value = 'without'\nelse:\n    value = 'with'\n"
    )
    with looking_at("model.json", ["own_place"]):
        assert imported_value() == "without"
    del sys.modules["own_place"]
    with looking_at("model.json", ["own_place", "own_place_too"]):
        assert imported_value() == "with"
    with pytest.raises(ModuleNotFoundError):
        __import__("own_place_three")


def test_where_a_job_is_run_its_manifest_is_enough(foreign_directory: Path) -> None:
    with running(), looking_at("job.yaml"):
        assert imported_value() == 1
    assert ran(foreign_directory) == ["own_place"]


def test_what_was_allowed_around_a_document_is_allowed_for_it() -> None:
    with looking_at("", ["own_place"]), looking_at("job.yaml", ["own_place_too"]):
        assert (imported_value(), imported_value("python:own_place_too:value")) == (1, 1)
    with looking_at("", ["own_place"]), pytest.raises(ImportNotAllowed):
        imported_value("python:own_place_too:value")


@pytest.mark.parametrize("name", ["", "*", "own place", "a:b:c", "a.b:", ".a", "a/b", "a.py:x y", "lambda"])
def test_a_permission_names_a_module(name: str) -> None:
    with pytest.raises(ManifestInvalid, match=r"is no module; write package\.module, or"):
        looking_at("model.json", [name]).__enter__()


# --- Methods of other packages.


@pytest.fixture
def offered_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an installed package offers, under names of its own and of others."""
    names = ("own", "fedavg", "\x1b[2J", "a b", "../own")
    points = [EntryPoint(name, "own_place:value", registry.GROUP) for name in names]
    known = [*registry._entry_points().values(), *points]
    monkeypatch.setattr(registry, "entry_points", lambda group: known if group == registry.GROUP else [])
    registry._entry_points.cache_clear()
    monkeypatch.setattr(registry, "_entry_points", registry._entry_points.__wrapped__)


@pytest.mark.usefixtures("offered_entry_points")
def test_no_package_takes_the_place_of_a_built_in_method(foreign_directory: Path) -> None:
    assert registry.get("fedavg").__module__.startswith("fedsilo.methods")
    assert registry.package_of("fedavg") is None
    assert ran(foreign_directory) == []


@pytest.mark.usefixtures("offered_entry_points")
def test_names_that_no_manifest_can_have_are_no_methods() -> None:
    others = {name for name in registry.names() if registry.package_of(name) is not None}
    assert others == {"own"}


ODD_PREFIXES = (
    "",
    "a b",
    "own_place",
    "own_place:",
    "own_place:a b",
    "own_place:1",
    "own place:value",
    "own_place:a..b",
)


def offer(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """Have these entry points beside those of fedsilo."""
    known = [*points, *registry._entry_points().values()]
    monkeypatch.setattr(registry, "entry_points", lambda group: known if group == registry.GROUP else [])
    monkeypatch.setattr(registry, "_entry_points", registry._entry_points.__wrapped__)


@pytest.mark.parametrize("value", ODD_PREFIXES)
def test_an_entry_point_of_another_form_is_listed_and_says_what_is_asked_for(
    value: str, foreign_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, EntryPoint("odd", value, registry.GROUP))
    with pytest.raises(MethodError) as refused:
        registry.get("odd")
    assert str(refused.value) == (
        f"method 'odd': entry point {value!r} names no class; whoever offers it must write package.module:Class"
    )
    assert registry.package_of("odd") is not None
    assert main(["methods"]) == 0
    assert re.search(
        r"^odd +cannot be used: method 'odd': entry point ", capsys.readouterr().out, re.MULTILINE
    )
    assert ran(foreign_directory) == []


@pytest.mark.parametrize(
    "value", ["own_place:Outer.Inner", "own_place:Outer.Inner [extra]", "own_place : Outer.Inner"]
)
def test_a_class_inside_another_and_extras_are_as_any_other_class(
    value: str, foreign_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (foreign_directory / "own_place.py").write_text("class Outer:\n    class Inner:\n        pass\n")
    monkeypatch.syspath_prepend(foreign_directory)
    offer(monkeypatch, EntryPoint("own", value, registry.GROUP))
    with looking_at("job.yaml"), pytest.raises(ImportNotAllowed, match="add --allow-import own_place:Outer "):
        registry.get("own")
    with (
        looking_at("job.yaml", ["own_place:Outer"]),
        pytest.raises(MethodError, match="is a type, not a Method"),
    ):
        registry.get("own")


def test_an_entry_point_of_another_form_takes_no_name(
    foreign_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(
        monkeypatch,
        EntryPoint("own", "own_place:value", registry.GROUP),
        EntryPoint("own", "a b", registry.GROUP),
        EntryPoint("fedavg", "a b", registry.GROUP),
    )
    assert (registry.package_of("own"), registry.package_of("fedavg")) == ("own_place", None)
    assert registry.get("fedavg").__module__.startswith("fedsilo.methods")


def test_who_names_a_method_allows_nothing_else_of_its_module(
    foreign_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (foreign_directory / "own_place.py").write_text(
        "from fedsilo.methods.fedavg import FedAvg\n\n\nclass Own(FedAvg):\n    name = 'own'\n\n\n"
        "def network(**_):\n    open('ran', 'w').close()\n"
    )
    monkeypatch.syspath_prepend(foreign_directory)
    offer(monkeypatch, EntryPoint("own", "own_place:Own", registry.GROUP))
    manifest = {
        "method": {"name": "own"},
        "model": {"name": "python:own_place:network"},
        "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8]},
        "training": {"rounds": 1},
        "silos": {"refs": [{"namespace": "silos", "name": "s0"}]},
    }
    documents = [
        {"kind": "Silo", "metadata": {"namespace": "silos", "name": "s0"}},
        {"kind": "FederatedJob", "metadata": {"namespace": "federation", "name": "digits"}},
    ]
    documents[0]["spec"] = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}]}
    documents[1]["spec"] = manifest
    path = foreign_directory / "job.yaml"
    path.write_text(yaml.safe_dump_all([{"apiVersion": "fedsilo.io/v1alpha1", **one} for one in documents]))
    arguments = argparse.ArgumentParser()
    methods.add_arguments(arguments)
    with pytest.raises(
        ImportNotAllowed, match=r"job\.yaml: spec\.model\.name: .*add --allow-import own_place:network "
    ):
        methods.run(arguments.parse_args(["own", "-f", str(path)]))
    assert ran(foreign_directory) == []


def test_the_pages_of_methods_import_no_other_package(
    foreign_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = method_pages.pages()
    offer(
        monkeypatch,
        EntryPoint("own", "own_place:value", registry.GROUP),
        EntryPoint("odd", "a b", registry.GROUP),
    )
    monkeypatch.syspath_prepend(foreign_directory)
    assert method_pages.pages() == before
    assert ran(foreign_directory) == []


@pytest.mark.usefixtures("offered_entry_points")
def test_a_method_of_another_package_is_imported_where_a_person_has_named_it(
    foreign_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        looking_at("provenance.json"),
        pytest.raises(ImportNotAllowed, match=r"^provenance.json: spec.method.name: 'own'"),
    ):
        registry.get("own")
    assert main(["methods"]) == 0
    assert re.search(
        r"^own +of own_place; `fedsilo methods own` imports and describes it", capsys.readouterr().out, re.M
    )
    assert ran(foreign_directory) == []
    with looking_at("", ["own_place"]), pytest.raises(MethodError, match="is a int, not a Method"):
        registry.get("own")
    assert ran(foreign_directory) == ["own_place"]


def test_a_method_whose_module_ends_the_process_is_blamed(
    foreign_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (foreign_directory / "own_place.py").write_text("raise SystemExit(0)\n")
    point = EntryPoint("own", "own_place:value", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: {"own": point})
    monkeypatch.syspath_prepend(foreign_directory)
    with pytest.raises(MethodError, match="entry point own_place:value does not load"):
        registry.get("own")
