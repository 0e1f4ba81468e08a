"""Which images there are, and what they are called."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from hack.paths import ROOT


@dataclass(frozen=True, slots=True)
class Image:
    """One image of the project: a target of a Dockerfile."""

    name: str
    dockerfile: str


IMAGES = (
    Image("operator", "operator/Dockerfile"),
    Image("guard", "silo-agent/Dockerfile"),
    Image("trainer", "silo-agent/Dockerfile"),
    Image("aggregator", "aggregator/Dockerfile"),
)
"""An image's name is also its target in the Dockerfile."""

BASE = "localhost/fedsilo-base:bookworm"
"""Debian with Python 3.11, in place of the Dockerfiles' base, which only a registry has."""

TOOLBOX = "localhost/fedsilo-toolbox:bookworm"
"""The image of Debian and Python as tests run it: pods that sleep, listen, connect and write files."""


def version() -> str:
    """The project's version, as `pyproject.toml` states it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, str] = tomllib.load(file)["project"]
    return project["version"]


def reference(name: str) -> str:
    """The full name of an image. With the host part `localhost` it is never looked up in a registry."""
    return f"localhost/fedsilo-{name}:{version()}"


def references() -> list[str]:
    """Every image that the cluster is given."""
    return [*(reference(image.name) for image in IMAGES), TOOLBOX]
