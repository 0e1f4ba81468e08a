from __future__ import annotations

import io

import pytest
from typing_extensions import override

from fedsilo.cli.confirmation import agreed
from fedsilo.errors import ManifestInvalid


class _Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "agrees"), [("y", True), (" Yes ", True), ("", False), ("n", False), ("yess", False)]
)
def test_only_a_yes_is_a_yes(
    typed: str, agrees: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal(f"{typed}\n"))
    assert agreed("Leave?") is agrees
    assert capsys.readouterr().out == "\nLeave? [y/N] "


def test_nobody_is_asked_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ManifestInvalid, match=r"no terminal, so nobody can be asked; add --yes to leave$"):
        agreed("Leave?", to="leave")
