"""Importing what a manifest names of one's own: `python:package.module:attribute`.

There is one rule for every program and command. What Python finds by itself is found: installed packages, and the
folders of PYTHONPATH. The current directory comes last, so that a file there never stands in for a module of Python
or of a package. Nothing is imported before it is used, and where a document is only looked at, nothing that a person
has not allowed (`fedsilo.api.allowed_imports`); there, nothing else is found in the current directory either.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from fedsilo.api.allowed_imports import CURRENT_DIRECTORY, find_here, is_looking, require_allowed
from fedsilo.api.python_reference import python_reference
from fedsilo.api.text import first_line, join_names, shortened_list
from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError, quoted_value

MAX_FOLDERS = 6
"""Most of the searched folders that a message names."""


def import_user_code(
    name: str,
    *,
    field: str,
    remedy: str,
    absent: type[FedsiloError] = ManifestInvalid,
    broken: type[FedsiloError] = MethodError,
) -> Any:
    """The object that a name such as `python:package.module:attribute` stands for.

    :param name: of that form, which has been checked.
    :param field: of the manifest, where the name stands.
    :param remedy: where its package is to be installed, as an instruction.
    :param absent: error for a module or an attribute that is not there.
    :param broken: error for a module that raises, or ends the process.
    :raises ImportNotAllowed: where a document that is only looked at names what nobody has allowed.
    """
    reference = python_reference(name)
    assert reference is not None, "the form is checked where the manifest is"
    module, attribute = reference
    require_allowed(module, attribute, f"{field}: {name!r}", origin_of(name))
    found = _import(module, f"{field}: {name!r}", remedy, absent, broken)
    try:
        return getattr(found, attribute)
    except AttributeError as missing:
        file = getattr(found, "__file__", None)
        where = f" (the module is {file})" if file else ""
        raise absent(
            f"{field}: {name!r}: cannot be imported: module {module!r} has no attribute {attribute!r}; {remedy} in a "
            f"version that has it, or correct the name{where}"
        ) from missing


def _import(
    module: str, subject: str, remedy: str, absent: type[FedsiloError], broken: type[FedsiloError]
) -> ModuleType:
    search_current_directory()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise absent(
            f"{subject}: cannot be imported: {first_line(missing)}{place_of(missing)} in "
            f"{_searched_folders_text()}; {remedy}, or, where no image is used, put it "
            "into the current directory or a folder of PYTHONPATH"
        ) from missing
    except ImportError as failure:
        raise absent(
            f"{subject}: cannot be imported: {first_line(failure)}{place_of(failure)}; {remedy}"
        ) from failure
    except (Exception, SystemExit) as failure:
        raise broken(
            f"{subject}: its module raises {error_summary(failure)}{place_of(failure)}; correct the module"
        ) from failure


def search_current_directory() -> None:
    """Let Python find modules in the current directory, too, after everything else: those that may be imported."""
    if is_looking():
        if CURRENT_DIRECTORY not in sys.meta_path:
            sys.meta_path.append(CURRENT_DIRECTORY)
        return
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it has been removed
        return
    if here != here.parent and str(here) not in sys.path and "" not in sys.path:
        sys.path.append(str(here))


def origin_of(name: str) -> str | None:
    """File, or folder, of the module in a name such as `python:package.module:attribute`, without importing anything.

    None where it is not found; whether it has the attribute, and whether it can be imported, is not known.
    """
    reference = python_reference(name)
    if reference is None:
        return None
    origin, folders = None, None
    parts = reference[0].split(".")
    for count, part in enumerate(parts):
        if count and folders is None:  # a module, and no package
            return None
        specs = (finder.find_spec(".".join(parts[: count + 1]), folders) for finder in sys.meta_path)
        spec = next(filter(None, specs), None) or (None if count else find_here(part))
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        origin = spec.origin or next(iter(folders or ()), None)
    return origin


def searched_folders() -> Sequence[str]:
    """Where a module is looked for, in that order, apart from Python's own library."""
    paths = sysconfig.get_paths()
    library = {paths["stdlib"], paths["platstdlib"], str(Path(paths["platstdlib"], "lib-dynload"))}
    own = [path or str(Path.cwd()) for path in sys.path if path not in library and not path.endswith(".zip")]
    if CURRENT_DIRECTORY in sys.meta_path and is_looking():
        own.append(str(Path.cwd()))
    return own or sys.path


def _searched_folders_text() -> str:
    """The folders in words; the last one is the current directory, and always named."""
    *others, last = searched_folders()
    return join_names([*shortened_list(others, MAX_FOLDERS - 1, "more folders"), last], MAX_FOLDERS)


def error_summary(failure: BaseException, *, saw_data: bool = False) -> str:
    """An error of foreign code, on one line: its type, and what it says.

    :param saw_data: whether the code was given data, which its text may quote.
    """
    kind, text = type(failure).__name__, first_line(failure)
    if text == kind:
        return f"{kind} without a message"
    return f"{kind}: {quoted_value(text) if saw_data else text}"


def place_of(failure: BaseException, ours: Collection[str] = ()) -> str:
    """` at FILE:LINE`, the innermost place of foreign code in an error; nothing where there is none.

    :param ours: files that foreign code calls and that are none of it.
    """
    place, trace = "", failure.__traceback__
    while trace is not None:
        if _is_foreign(trace) and trace.tb_frame.f_code.co_filename not in ours:
            place = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _is_foreign(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return not file.startswith("<frozen") and file not in (__file__, importlib.__file__)
