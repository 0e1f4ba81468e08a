"""What the configurations of loaders and partitions have in common: their base, and the types of their fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AllowInfNan, BaseModel, ConfigDict, Field, Strict
from pydantic.alias_generators import to_camel

# Strict scalars: a quoted number is a string in YAML, therefore here too.
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Flag = Annotated[bool, Strict()]
Share = Annotated[Number, Field(gt=0, lt=1)]
PositiveNumber = Annotated[Number, Field(gt=0)]
Seed = Annotated[Integer, Field(ge=0, lt=2**32)]
Pixels = Annotated[Integer, Field(ge=1)]
MaskValue = Annotated[Integer, Field(ge=0, le=255)]


class Config(BaseModel):
    """Base of all configurations: camelCase in YAML, no unknown fields."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


InMemoryFlag = Flag | None
IN_MEMORY: Any = Field(
    None,
    description="true to hold all features in memory, false to read each batch from the files; by default, up to"
    " 1 GiB are held",
)

Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
