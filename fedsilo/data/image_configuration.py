"""What a manifest may write of a dataset in image files."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from fedsilo.api.common import invalid_value
from fedsilo.api.text import count_text
from fedsilo.data.configuration import IN_MEMORY, Config, InMemoryFlag, MaskValue, Name, Pixels


class ImageFilesConfig(Config):
    """What all loaders of image files have in common."""

    size: tuple[Pixels, Pixels] | None = Field(
        None, description="[height, width] in pixels to resize every image to"
    )
    bits: Literal[8, 16] = Field(
        8, description="8, or 16 for grey images with more than 8 bits, which become numbers from 0 to 1"
    )
    person: Name | None = Field(
        None,
        description="a regular expression with one group, which finds whose an image is in its path below the folder "
        "of its class, or of all images",
    )
    in_memory: InMemoryFlag = IN_MEMORY

    @field_validator("person")
    @classmethod
    def _one_group(cls, person: str | None) -> str | None:
        if person is None:
            return None
        remedy = "write one with one group in brackets, such as '^(P[0-9]+)_'"
        try:
            groups = re.compile(person).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise invalid_value(f"is no regular expression ({error})", remedy) from None
        if groups != 1:
            raise invalid_value(f"has {count_text(groups, 'group')} and needs one", remedy)
        return person


class ImageFolderConfig(ImageFilesConfig):
    """One folder per class, of its name; for a job without names they are classes 0, 1, 2 and so on, sorted by name."""

    path: str = Field(min_length=1, description="the path of a folder that holds one folder per class")


class MaskFolderConfig(ImageFilesConfig):
    """A folder `images` and a folder `masks`, whose files have the images' names and a class at every pixel."""

    path: str = Field(
        min_length=1, description="the path of a folder that holds the folders images and masks"
    )
    classes: dict[Name, MaskValue] | None = Field(
        None, min_length=1, description="name of each class in these masks: the value of its pixels, 0 to 255"
    )

    @field_validator("classes")
    @classmethod
    def _one_class_for_each_value(cls, classes: dict[str, int] | None) -> dict[str, int] | None:
        seen: dict[int, str] = {}
        for name, value in (classes or {}).items():
            if value in seen:
                raise invalid_value(
                    f"has {value} for {seen[value]!r} and for {name!r}", "give each class a value of its own"
                )
            seen[value] = name
        return classes
