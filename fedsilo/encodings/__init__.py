"""Encodings of float32 tensors in fewer bytes, for `spec.communication` (docs/communication.md, docs/wire.md).

Pure functions of arrays: the same numbers give the same bytes on every machine. Silo and aggregator both use them.
"""

from fedsilo.encodings.encoding import Encoding
from fedsilo.encodings.registry import encoding_of

__all__ = ["Encoding", "encoding_of"]
