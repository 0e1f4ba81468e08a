"""Updates whose tensors are cut into segments of a few bytes, where the wire's have a GiB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fedsilo.wire.header import ALIGNMENT


@contextmanager
def segments_of(size: int) -> Iterator[None]:
    """Let the wire's one constant be another in the `with` block.

    :param size: bytes; a multiple of `ALIGNMENT`, as the constant is.
    """
    assert size > 0
    assert size % ALIGNMENT == 0
    with mock.patch("fedsilo.wire.header.SEGMENT_BYTES", size):
        yield
