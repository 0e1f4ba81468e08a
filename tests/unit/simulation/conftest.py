"""What the simulation's tests share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush matters when the machine loses power, which no test here does; it takes most of their time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
