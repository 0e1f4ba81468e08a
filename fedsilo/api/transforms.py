"""Transforms of other packages that a job asks for: `spec.transforms`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fedsilo.api.common import Fields, FreeForm, Reference, invalid_value


class TransformSpec(Fields):
    """A transform of another package."""

    name: Reference = Field(
        min_length=1, description="Name of the transform, under which a package offers it."
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the transform.")


def _of_different_names(transforms: tuple[TransformSpec, ...]) -> tuple[TransformSpec, ...]:
    seen: set[str] = set()
    for position, transform in enumerate(transforms):
        if transform.name in seen:
            raise invalid_value("is named twice", "remove one", position, "name", value=transform.name)
        seen.add(transform.name)
    return transforms


Transforms = Annotated[
    tuple[TransformSpec, ...], Field(min_length=1, max_length=8), AfterValidator(_of_different_names)
]
"""In the order in which an update passes them."""
