"""Who follows a value through the code opens few files and seldom comes back to one; the counts only fall."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.call_paths import JOBS, TASK, UPDATES, FollowedValue, ReadersPath, path_of

MOST_FILES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    UPDATES.name: {"plain": (7, 2), "open updates": (12, 7), "private sums": (10, 6)},
    TASK.name: {"plain": (4, 2), "open updates": (8, 7), "private sums": (9, 5)},
}
"""Value -> job -> files, and returns. The goals are less in places (`tests.call_paths.GOALS`)."""


@pytest.mark.parametrize("value", [UPDATES, TASK], ids=lambda value: value.name)
@pytest.mark.parametrize("job", JOBS)
def test_a_value_goes_through_no_more_files_than_it_did(
    monkeypatch: pytest.MonkeyPatch, value: FollowedValue, job: str
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = path_of(value, JOBS[job])
    files, returns = MOST_FILES[value.name][job]
    found = "\n".join(path.lines())
    assert path.files <= files, found
    assert path.returns <= returns, found
    assert path.visits[0] == f"{value.owner.__module__.replace('.', '/')}.py"


def test_what_comes_back_is_a_return_and_a_file_in_a_row_is_one_visit() -> None:
    steps = [("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "h"), ("b.py", "g")]
    path = ReadersPath(dict.fromkeys(steps))
    assert path.visits == ["a.py", "b.py", "a.py", "b.py"]
    assert (path.files, path.returns) == (2, 2)
