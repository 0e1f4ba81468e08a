"""What the simulation's tests share."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata

import pytest

from fedsilo.data import loaders

read_once = cache(loaders.shipped_digits)
read_version = cache(metadata.version)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush matters when the machine loses power, which no test here does; it takes most of their time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def no_reading_of_the_digits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every silo reads its own; they are a text of which each reading costs more than a round."""
    monkeypatch.setattr(loaders, "shipped_digits", read_once)


@pytest.fixture(autouse=True)
def no_reading_of_versions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model's card names those of three packages, whose files are read and parsed each time."""
    monkeypatch.setattr(metadata, "version", read_version)
