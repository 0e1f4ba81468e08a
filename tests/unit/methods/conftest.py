"""What the methods's tests share."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata

import pytest

read_version = cache(metadata.version)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush matters when the machine loses power, which no test here does; it takes most of their time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def no_reading_of_versions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model's card names those of three packages, whose files are read and parsed each time."""
    monkeypatch.setattr(metadata, "version", read_version)
