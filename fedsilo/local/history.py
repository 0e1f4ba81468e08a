"""The rounds of a run as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import override

from fedsilo.api.scores import score_rows
from fedsilo.engine.record import counted_silos, total_samples
from fedsilo.errors import FedsiloError

if TYPE_CHECKING:
    import pandas


class History(Sequence[Mapping[str, Any]]):
    """One record per completed round, as in `history.jsonl`; printed, it is a table.

    >>> history = History([{"round": 1, "samples": {"a/a": 3}, "metrics": {"accuracy": 0.5}, "bytes": {"a/a": 80}}])
    >>> history[-1]["metrics"]
    {'accuracy': 0.5}
    >>> history
    round  silos  samples  bytes  accuracy
        1      1        3     80       0.5
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> History: ...
    @override
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | History:
        """A record, or some of them as a table."""
        return History(self._records[index]) if isinstance(index, slice) else self._records[index]

    @override
    def __len__(self) -> int:
        """Number of completed rounds."""
        return len(self._records)

    @override
    def __repr__(self) -> str:
        """The table as text."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [names, *([_cell_text(row.get(name)) for name in names] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = (
            (cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines if line
        )
        return "\n".join("  ".join(line) for line in aligned) or "no completed round"

    def rows(self) -> list[dict[str, Any]]:
        """Each round's figures of all silos together, metrics under their names, training's as `training loss`."""
        return [dict(_row(record)) for record in self._records]

    def score_rows(self) -> list[dict[str, Any]]:
        """Each silo's scores in each evaluation, where all silos permit that: round, silo, examples, metrics."""
        return list(score_rows(self._records))

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame.

        :raises FedsiloError: pandas is not installed.
        """
        return data_frame(self.rows())


def data_frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a data frame.

    :raises FedsiloError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as missing:
        raise FedsiloError("a data frame needs pandas; pip install pandas") from missing
    return pandas.DataFrame(rows)


def _row(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "round", record["round"]
    yield "silos", len(counted_silos(record))
    yield "samples", total_samples(record)
    yield "bytes", sum(record["bytes"].values())
    if "seconds" in record:
        yield "seconds", record["seconds"]
    yield from record.get("metrics", {}).items()
    for name, value in record.get("training", {}).items():
        yield f"training {name}", value


def _cell_text(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
