"""The package's own names: documented, importable without torch, and all that pages and examples use."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedsilo
from tests.pages import blocks, name_of, pages
from tests.paths import ROOT

PAGE = "docs/python.md"


def test_every_public_name_is_there() -> None:
    for name in fedsilo.__all__:
        assert getattr(fedsilo, name) is not None
    assert sorted(fedsilo.__all__) == list(fedsilo.__all__) == sorted(set(fedsilo.__all__))
    assert dir(fedsilo) == list(fedsilo.__all__)


def test_a_name_that_is_not_public_is_none() -> None:
    with pytest.raises(AttributeError, match="module 'fedsilo' has no attribute 'train'"):
        fedsilo.train  # noqa: B018


def test_the_page_documents_every_public_name_and_no_other() -> None:
    tables = re.findall(r"^\| (`[^|]*) \|", (ROOT / PAGE).read_text(), flags=re.MULTILINE)
    named = {name for cell in tables for name in re.findall(r"`(\w+)[`(]", cell)}
    others = re.findall(r"`([A-Z]\w+|__version__)`", (ROOT / PAGE).read_text())
    assert named | set(others) - {"KeyboardInterrupt", "None"} == set(fedsilo.__all__)


def test_importing_the_package_is_light() -> None:
    heavy = ("torch", "numpy", "pydantic", "rich")
    code = f"import sys, fedsilo; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def imported_names(code: str) -> Iterator[str]:
    """Names of the project that code imports or takes from the package."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0].startswith("fedsilo"))
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0].startswith(
                "fedsilo"
            ):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Attribute(value=ast.Name(id="fedsilo"), attr=name):
                yield f"fedsilo.{name}"


CODE = [(name_of(page), code) for page in pages() for code in blocks(name_of(page), "python")]
CODE += [
    (str(path.relative_to(ROOT)), path.read_text()) for path in sorted((ROOT / "examples").rglob("*.py"))
]


@pytest.mark.parametrize(("page", "code"), CODE, ids=[page for page, _ in CODE])
def test_pages_and_examples_use_nothing_but_public_names(page: str, code: str) -> None:
    public = {"fedsilo", *(f"fedsilo.{name}" for name in fedsilo.__all__)}
    assert set(imported_names(code)) <= public


def test_the_search_for_names_finds_them() -> None:
    code = "import fedsilo.wire\nfrom fedsilo.api import job\nimport fedsilo\nfedsilo.run('x')\n"
    assert sorted(imported_names(code)) == ["fedsilo", "fedsilo.api.job", "fedsilo.run", "fedsilo.wire"]
    assert Path(fedsilo.__file__).parent == ROOT / "fedsilo"
