"""Files of examples that an institution was given by others: tables and arrays, read to their last value."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec
from fedsilo.data.loaders import load

ROWS = 'age,colour,income,target\n31,red,1200.5,0\n42,"green",,1\nNA,red,-3e2,2\n'
COLUMNS = {"columns": ["age", "income", "colour"], "categories": {"colour": ["red", "green"]}, "fill": 0.0}


@dataclass(frozen=True)
class DataFile:
    """One kind of file.

    :param loader: with its settings, of which the file is called `input`.
    :param shape: of an example.
    """

    loader: str
    config: Mapping[str, Any]
    shape: tuple[int, ...]
    seeds: tuple[bytes, ...]

    def parse(self, path: Path) -> object:
        """All examples, as training gets them: once held in memory, once from where they lie."""
        np.save(path.with_name("labels.npy"), np.arange(3))
        data = DataSpec.model_validate({"dataset": "data", "classes": 3, "inputShape": list(self.shape)})
        found = []
        for in_memory in (True, False):
            config = {**self.config, "inMemory": in_memory}
            dataset = DatasetSpec.model_validate({"name": "data", "loader": self.loader, "config": config})
            arrays = load(dataset, data, root=path.parent)
            found.append((np.asarray(arrays.features), arrays.labels))
        (held, labels), (stored, same) = found
        assert np.array_equal(held, stored) and np.array_equal(labels, same)
        return found


def data_files() -> dict[str, DataFile]:
    """The kinds of data files that are fuzzed, by name."""
    table = {"path": "input", "target": "target", **COLUMNS}
    arrays = {"features": "input", "labels": "labels.npy"}
    return {
        "csv": DataFile("csv", table, (4,), (ROWS.encode(), ROWS.replace("\n", "\r\n").encode())),
        "parquet": DataFile("parquet", table, (4,), (_parquet("none"), _parquet("snappy"))),
        "npy": DataFile("npy", arrays, (2, 2, 2), (_npy(np.float32), _npy(np.uint8), _npy(np.uint16))),
    }


def _parquet(compression: str) -> bytes:
    columns = {
        "age": pyarrow.array([31, None, 5], pyarrow.int32()),
        "income": pyarrow.array([1.5, -2.0, None]),
        "colour": pyarrow.array(["red", "green", "red"]).dictionary_encode(),
        "target": pyarrow.array([0, 1, 2]),
    }
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression=compression)
    return file.getvalue()


def _npy(dtype: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(24).reshape(3, 2, 2, 2).astype(dtype))
    return file.getvalue()
