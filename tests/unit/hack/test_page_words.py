"""The words of the hand-written pages are counted."""

from __future__ import annotations

import pytest

from hack.page_words import count_words, hand_written_pages, main


def test_code_and_bars_are_words_but_no_prose() -> None:
    assert count_words("Two words\n\n```sh\nmake demo\n```\n\n| a | cell |\n|---|---|\n") == (12, 4)


def test_what_is_generated_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    pages = dict(hand_written_pages())
    assert "docs/results/causes.md" not in pages
    assert "## Reasons" not in pages["docs/combinations.md"]
    assert main() == 0
    assert "words, and of prose, in all" in capsys.readouterr().out.splitlines()[-1]
