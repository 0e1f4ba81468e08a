"""A silo without images: what runs there is what the institution has installed, whatever image a job names.

Its proposals name the installed release in place of images, so that whoever decides on a job sees it, and is asked
again when another release would run.
"""

from __future__ import annotations

from importlib import metadata

INSTALLED_IMAGE_NAME = "installed/fedsilo"
"""In place of an image's name."""


def installed_image() -> str:
    """The installed release, in the form of an image's name."""
    return f"{INSTALLED_IMAGE_NAME}:{metadata.version('fedsilo').replace('+', '-')}"


def is_installed(image: str) -> bool:
    """Whether a proposal's image means what is installed."""
    return image.partition(":")[0] == INSTALLED_IMAGE_NAME
