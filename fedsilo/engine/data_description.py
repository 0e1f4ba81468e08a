"""The section of a model card about the data: what the job says of them, and what silos announced."""

from __future__ import annotations

from collections.abc import Mapping

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import comma_separated, count_text
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.engine.markdown import escape_markdown, table

MAX_NAMES = 100
"""Names of classes, columns or categories that are listed."""


def data_section(spec: FederatedJobSpec, schemata: Mapping[str, Schema], samples: int | None) -> list[str]:
    """Lines of the section.

    :param samples: training examples of all silos together, where they are told.
    """
    data = spec.data
    shape = ", ".join(map(str, data.input_shape))
    rows = [("dataset", f"`{data.dataset}`"), ("input", f"float32, (n, {shape})")]
    if spec.task is not None and spec.task.name == "language":
        rows[-1] = ("input", f"token numbers, (n, {shape})")
    channels = {schema.channels for schema in schemata.values() if schema.channels is not None}
    ranges = {schema.value_range for schema in schemata.values() if schema.value_range is not None}
    if channels:
        rows.append(("channels", ", ".join(map(str, sorted(channels)))))
    if ranges:
        rows.append(("values between", ", ".join(sorted(ranges))))
    classes = data.class_names or silos_classes(schemata)
    if classes is not None:
        rows.append((f"classes ({len(classes)}), by label", _names(classes)))
    elif data.class_count:
        rows.append(("classes", f"{data.class_count}, without names"))
    if data.preprocessing is not None:
        rows.append(("preprocessing", f"{_preprocessing(spec)}, computed over all silos (`model.json`)"))
    if samples is not None:
        rows.append(("training examples, all silos together", f"{samples:,}"))
    described = f"{count_text(len(schemata), 'silo')} announced names and types of the data before round 1."
    return [
        "## Data",
        "",
        *([described, ""] if schemata else []),
        *table(("", ""), rows),
        *_columns(schemata),
    ]


def silos_classes(schemata: Mapping[str, Schema]) -> tuple[str, ...] | None:
    """Names of the classes by label, where silos have announced them; before round 1 they are found to be equal."""
    return next((schema.classes for schema in schemata.values() if schema.classes is not None), None)


def _preprocessing(spec: FederatedJobSpec) -> str:
    preprocessing = spec.data.preprocessing
    assert preprocessing is not None
    done = [f"missing values become the {preprocessing.impute}"] if preprocessing.impute else []
    done += ["standardised"] if preprocessing.standardise else []
    return ", ".join(done)


def _columns(schemata: Mapping[str, Schema]) -> list[str]:
    """The columns of tables; they have passed a comparison, so that one silo's are those of all."""
    schema = next((found for found in schemata.values() if found.columns is not None), None)
    if schema is None or schema.columns is None:
        return []
    shown = [_column(column, "input") for column in schema.columns[:MAX_NAMES]]
    left_out = len(schema.columns) - len(shown)
    rest = [("", f"{left_out} more", "", "")] if left_out else []
    target = [] if schema.target is None else [_column(schema.target, "target")]
    return ["", *table(("use", "column", "type", "categories"), [*shown, *rest, *target])]


def _column(column: TableColumn, use: str) -> tuple[str, str, str, str]:
    categories = "" if column.categories is None else _names(column.categories)
    return use, escape_markdown(column.name), column.type, categories


def _names(names: tuple[str, ...]) -> str:
    return comma_separated([escape_markdown(name) for name in names], MAX_NAMES)
