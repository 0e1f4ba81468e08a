"""A run shows what it can read, and leaves it to the aggregator to say what holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.local.progress import _read_lines


@pytest.mark.parametrize(
    "damaged", [b'{"round": 2', b"\0\0\0", b'{"round": "\xff"}', b"{]", b"7", b"[" * 100_000]
)
def test_a_history_is_shown_as_far_as_it_can_be_read(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "history.jsonl"
    assert _read_lines(path) == []
    path.write_bytes(b'{"round": 1}\n' + damaged)
    assert _read_lines(path) == [{"round": 1}], "a line that is being written"
    path.write_bytes(b'{"round": 1}\n' + damaged + b'\n{"round": 3}\n')
    assert _read_lines(path) == [{"round": 1}]
