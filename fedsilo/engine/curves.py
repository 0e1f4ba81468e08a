"""Learning curves for TensorBoard: an event file beside the model, one event per completed round.

An event file is a sequence of TFRecords: length, its checksum, a protocol buffer `Event`, its checksum (TensorFlow,
`core/lib/io/record_writer.h` and `core/util/event.proto`). Six fields of those messages are all that a curve needs, so
they are encoded here: the tensorboard package would bring gRPC and 50 MB into the image, to write the same bytes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine.record import Record
from fedsilo.engine.status import EngineStatus

FILE = "curves.tfevents"
"""TensorBoard takes every file with `tfevents` in its name."""

VERSION = b"brain.Event:2"
"""Content of the first record, by which a reader recognises the format."""

_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def _table() -> Iterator[int]:
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


_TABLE = tuple(_table())


class CurvesSink:
    """A `StatusSink` that appends new rounds of the history to the file.

    The file follows from the history but for the times, so it is repaired, not kept durable: a record that a crash
    left incomplete is cut off, and missing ones are written.

    :param history: the records of the completed rounds.
    :param directory: where the model will be.
    :param now: Unix time, at which rounds are noted.
    """

    def __init__(
        self, history: Callable[[], Sequence[Record]], directory: Path, now: Callable[[], float] = time.time
    ) -> None:
        self._history = history
        self._path = directory / FILE
        self._now = now
        found = list(_complete_records(self._path.read_bytes())) if self._path.exists() else []
        self._size = found[-1] if found else 0
        self._records = len(found)

    def publish(self, status: EngineStatus) -> None:  # noqa: ARG002 (the history says more)
        """Note the rounds that are complete by now; a full disk is no reason to stop."""
        try:
            if self._records == 0:
                self._append(_event(self._now(), version=VERSION))
            # The first record is the version.
            for line in self._history()[self._records - 1 :]:
                self._append(_event(self._now(), line["round"], figures(line)))
        except OSError:
            return

    def _append(self, event: bytes) -> None:
        mode = "r+b" if self._path.exists() else "wb"
        with self._path.open(mode) as file:
            file.truncate(self._size)
            file.seek(self._size)
            file.write(_record(event))
            size = file.tell()
        self._size = size
        self._records += 1


def requested_curves(
    spec: FederatedJobSpec, history: Callable[[], Sequence[Record]], directory: Path
) -> tuple[CurvesSink, ...]:
    """The job's curves, where its specification requests them."""
    tensorboard = spec.output is not None and spec.output.tensorboard
    return (CurvesSink(history, directory),) if tensorboard else ()


def figures(line: Record) -> dict[str, float]:
    """Every curve's value in a round, from the round's record."""
    found = {f"evaluation/{name}": value for name, value in line.get("metrics", {}).items()}
    found |= {f"training/{name}": value for name, value in line["training"].items()}
    for reference, own in line["silos"].items():
        silo = reference.rpartition("/")[2]
        found |= {f"silos {name}/{silo}": value for name, value in own.items()}
    found |= {f"bytes/{silo.rpartition('/')[2]}": count for silo, count in line["bytes"].items()}
    return found | {"round/seconds": line["seconds"]}


def _event(
    seconds: float, step: int = 0, values: Mapping[str, float] | None = None, version: bytes = b""
) -> bytes:
    """Encode TensorBoard's message `Event`: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
    summary = 5 (message).
    """
    content = b"\x09" + struct.pack("<d", seconds) + b"\x10" + _varint(step)
    if version:
        return content + _bytes(3, version)
    # `Summary`: value = 1, each with tag = 1 (string) and simple_value = 2 (float).
    entries = (
        _bytes(1, _bytes(1, tag.encode()) + b"\x15" + _float(value)) for tag, value in (values or {}).items()
    )
    return content + _bytes(5, b"".join(entries))


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*content, number))


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    """The CRC-32C (RFC 3720, appendix B.4), masked as TFRecord does."""
    value = 0xFFFFFFFF
    for byte in content:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    value ^= 0xFFFFFFFF
    return _CHECKSUM.pack(((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _complete_records(content: bytes) -> Iterator[int]:
    """Where each record ends, up to the first that is incomplete."""
    place = 0
    while place + _HEAD.size <= len(content):
        length, _ = _HEAD.unpack_from(content, place)
        begin = place + _HEAD.size
        end = begin + length + _CHECKSUM.size
        record = content[begin : begin + length]
        if end > len(content) or content[place:end] != _record(record):
            return
        yield end
        place = end
