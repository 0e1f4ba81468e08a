"""The campaign finds a planted defect, and keeps what it needs and no more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import __main__ as campaign
from tests.fuzz import corpus
from tests.fuzz.targets import Target


def parse(data: bytes) -> None:
    if b"{" in data and not data.startswith(b"{"):
        raise KeyError("a defect")
    if data.startswith(b"{"):
        raise ValueError("a refusal")


def test_a_defect_is_found_and_its_input_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    target = Target("planted", parse, (ValueError,), (b"some honest bytes {",))
    assert campaign.run([target], 30, random.Random(0)) == 1
    (kept,) = corpus.saved_inputs(target)
    assert len(kept.read_bytes()) == 2 and kept.read_bytes().endswith(b"{")
    assert "KeyError: 'a defect'" in capsys.readouterr().err


def test_a_refusal_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    target = Target("sound", lambda data: int(data), (ValueError,), (b"7",))
    assert campaign.run([target], 0.1, random.Random(0)) == 0
    assert corpus.saved_inputs(target) == []
