"""Arrays in NumPy's formats: `.npz` archives, and pairs of `.npy` files; nothing is ever unpickled."""

from __future__ import annotations

import math
import struct
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.data.arrays import LoadedData, distinct_names
from fedsilo.data.catalogue import NpyConfig, NpzConfig
from fedsilo.data.sources import OpenFile, StoredRows, stays_in_files
from fedsilo.errors import DataInvalid, quoted_value

LOCAL_HEADER_BYTES = 30
"""Bytes of the header of an entry of a ZIP file, before its name (APPNOTE.TXT, 4.3.7)."""

Features = np.ndarray | StoredRows


def read_npz(path: Path, config: NpzConfig) -> LoadedData:
    """Two arrays of an `.npz` file, and the names of the classes where it has them."""
    _require_file("config.path", path)
    try:
        # The file is opened here, because NumPy leaves a damaged archive open; NpzFile and not np.load, which
        # takes what is no archive for a pickle.
        with path.open("rb") as file:
            archive = np.lib.npyio.NpzFile(file, allow_pickle=False)
            wanted = {"features": config.features, "labels": config.labels, "person": config.person}
            for field, key in wanted.items():
                if key is not None and key not in archive.files:
                    raise DataInvalid(
                        f"config.{field}: {key!r} is not an array of {str(path)!r};"
                        f" use one of {quoted_value(', '.join(archive.files))}"
                    )
            named = config.classes in archive.files and config.classes not in (config.features, config.labels)
            names = archive[config.classes] if named else None
            features = _stored_member(path, archive, config) or archive[config.features]
            classes = _npz_classes(names, config)
            persons = None if config.person is None else archive[config.person]
            return LoadedData(features, archive[config.labels], classes, persons=persons)
    except (DataInvalid, PermissionError):
        raise
    except Exception as error:  # what archives and decompressors raise on a broken file is not specified
        raise DataInvalid(
            f"config.path: {str(path)!r} cannot be read ({quoted_value(first_line(error))});"
            " write numeric arrays with numpy.savez"
        ) from error


def _npz_classes(names: np.ndarray | None, config: NpzConfig) -> list[str] | None:
    """The names in an archive's array; one of another kind, for which nobody has asked, is something else."""
    if names is not None and names.ndim == 1 and names.dtype.kind == "U":
        return distinct_names(names.tolist(), f"config.classes: {config.classes!r}")
    if "classes" not in config.model_fields_set:
        return None
    found = "is not in the file" if names is None else f"has dtype {names.dtype} and shape {names.shape}"
    raise DataInvalid(f"config.classes: {config.classes!r} {found}; write a list of names with numpy.savez")


def read_npy(root: Path, config: NpyConfig) -> LoadedData:
    """The arrays of two `.npy` files."""
    return LoadedData(
        _read_array("config.features", root / config.features, config.in_memory),
        _whole_array("config.labels", root / config.labels),
        persons=None if config.person is None else _whole_array("config.person", root / config.person),
    )


def _read_array(field: str, path: Path, in_memory: bool | None) -> Features:
    _require_file(field, path)
    try:
        with path.open("rb") as file:
            found = _rows(file, path, path.stat().st_size, in_memory)
    except PermissionError:
        raise
    except Exception as error:
        raise _not_npy(field, path, error) from error
    return _whole_array(field, path) if found is None else found


def _whole_array(field: str, path: Path) -> np.ndarray:
    _require_file(field, path)
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except PermissionError:
        raise
    except Exception as error:  # NumPy does not specify what a broken header raises
        raise _not_npy(field, path, error) from error


def _not_npy(field: str, path: Path, error: Exception) -> DataInvalid:
    return DataInvalid(
        f"{field}: {str(path)!r} cannot be read ({quoted_value(first_line(error))}); write a numeric array with "
        "numpy.save"
    )


def _require_file(field: str, path: Path) -> None:
    if not path.is_file():
        raise DataInvalid(f"{field}: {str(path)!r} is not a file; mount the data there or correct the path")


def _stored_member(path: Path, archive: np.lib.npyio.NpzFile, config: NpzConfig) -> StoredRows | None:
    """The features where they are in the archive, if they stay there."""
    name = config.features if config.features in archive.zip.NameToInfo else f"{config.features}.npy"  # type: ignore[union-attr]
    entry = archive.zip.getinfo(name)  # type: ignore[union-attr]
    if not stays_in_files(config.in_memory, entry.file_size):
        return None
    if entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1:
        with path.open("rb") as file:
            file.seek(entry.header_offset + LOCAL_HEADER_BYTES - 4)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            file.seek(name_bytes + extra_bytes, 1)
            found = _rows(file, path, file.tell() + entry.file_size, config.in_memory)
            if found is not None:
                return found
    if config.in_memory is False:
        raise DataInvalid(
            f"config.inMemory: {config.features!r} of {str(path)!r} cannot be read row by row, since it is compressed"
            " or not in C order; write it with numpy.savez, or set config.inMemory to true"
        )
    return None


def _rows(file: IO[bytes], path: Path, end: int, in_memory: bool | None) -> StoredRows | None:
    """The array that begins here in NumPy's format, if it can stay in its file and does.

    :param end: where it must have ended
    """
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        return None
    shape, fortran_order, dtype = read_header(file)
    nbytes = math.prod(shape) * dtype.itemsize
    numeric = dtype.kind in "iuf" and bool(shape) and min(shape) >= 0
    if not numeric or fortran_order or file.tell() + nbytes > end or not stays_in_files(in_memory, nbytes):
        return None
    return StoredRows(OpenFile.of(path), str(path), file.tell(), shape, dtype)
