"""Plain aligned columns, for commands that must not need more than the base installation."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedsilo.wire.problems import one_line


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows of equally many cells as lines, two spaces between columns; a cell can neither end a line nor colour it.

    :param right: positions of the columns that are set to the right, as numbers are.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if position in right else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
