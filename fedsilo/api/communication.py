"""The `communication` section of a FederatedJob: in how many bytes tensors travel, and by which hash."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.common import Fields, Flag, Integer, Number, invalid_value

_ENCODING = "How a float32 tensor is written; docs/communication.md compares them."


class _DirectionSpec(Fields):
    """How the model's tensors are sent, in either direction."""

    encoding: str = Field(description=_ENCODING)
    block: Integer | None = Field(
        default=None,
        ge=16,
        le=4096,
        description="Numbers that share a scale in int8, a power of two; 256 when null.",
    )
    compression: Literal["zstd"] | None = Field(
        default=None,
        description="Compress these tensors as they are encoded, without loss; not at all when null.",
    )

    @property
    def is_lossy(self) -> bool:
        """Whether what arrives differs from what its sender has."""
        return self.encoding != "float32"

    @property
    def is_encoded(self) -> bool:
        """Whether tensors are sent as other parts than themselves."""
        return self.is_lossy or self.compression is not None

    @model_validator(mode="after")
    def _block_fits_the_encoding(self) -> Self:
        if self.block is None:
            return self
        if self.encoding != "int8":
            raise invalid_value(
                "belongs to encoding int8", "remove it, or use int8", "block", value=self.block
            )
        if self.block & (self.block - 1):
            raise invalid_value("is not a power of two", "use 256, which is usual", "block", value=self.block)
        return self


class DownloadSpec(_DirectionSpec):
    """How the aggregator sends the model's tensors."""

    encoding: Literal["float32", "bfloat16", "float16", "int8"] = Field(
        default="float32", description=_ENCODING
    )


class UploadSpec(_DirectionSpec):
    """How silos send the model's tensors."""

    encoding: Literal["float32", "bfloat16", "float16", "int8", "topk"] = Field(
        default="float32", description=_ENCODING
    )
    fraction: Number | None = Field(
        default=None, gt=0, le=1, description="Part of a tensor's numbers that topk sends; 0.01 when null."
    )
    delta: Flag | None = Field(
        default=None,
        description="Send differences to what the task handed out; true when null, unless encoding is float32.",
    )
    error_feedback: Flag | None = Field(
        default=None,
        description="Keep what an encoding leaves out in the silo, and add it in its next round; true when null, "
        "unless encoding is float32.",
    )

    @property
    def sends_differences(self) -> bool:
        """`delta` with its default."""
        return self.is_lossy if self.delta is None else self.delta

    @property
    def feeds_errors_back(self) -> bool:
        """Whether silos add what the encoding left out to their next update; by default, where it is lossy."""
        return self.is_lossy if self.error_feedback is None else self.error_feedback

    @model_validator(mode="after")
    def _options_fit_the_encoding(self) -> Self:
        if self.fraction is not None and self.encoding != "topk":
            raise invalid_value(
                "belongs to encoding topk", "remove it, or use topk", "fraction", value=self.fraction
            )
        if self.encoding == "topk" and self.delta is False:
            problem = "has topk leave out most of the model, and not of its change"
            raise invalid_value(problem, "remove it", "delta", value=False)
        for field, value in (("delta", self.delta), ("errorFeedback", self.error_feedback)):
            if value and not self.is_lossy:
                remedy = "remove it, or choose another encoding"
                raise invalid_value(
                    "has no meaning with float32, which loses nothing", remedy, field, value=True
                )
        return self


class CommunicationSpec(Fields):
    """In how many bytes tensors travel, and by which hash they are known."""

    upload: UploadSpec | None = Field(
        default=None, description="From silos to the aggregator; tensors as they are when null."
    )
    download: DownloadSpec | None = Field(
        default=None, description="From the aggregator to silos; tensors as they are when null."
    )
    digest: Literal["sha256", "blake3"] | None = Field(
        default=None,
        description="Hash of what is large: blobs, and blocks of updates; SHA-256 when null.",
    )
