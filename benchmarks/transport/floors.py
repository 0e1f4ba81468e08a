"""What the same bytes cost with blocking TLS sockets: programs of a server and of silos, without HTTP and formats.

    python -m benchmarks.transport.floors server DIRECTORY KIND SILOS ROUNDS SIZE PORT
    python -m benchmarks.transport.floors silos DIRECTORY KIND ROUNDS SIZE PORT PROCESSES NAME...

The server has a thread per connection. A round: every silo gets the model and sends as many bytes back, each update
is synced to the disk before it is acknowledged, and the round is over when all are.

`tls`: nothing else; a silo keeps nothing of what it receives, and sends what lies in its buffer.
`sha256`, `blake3`: what the promises of this project cost, with that hash: a silo writes the model to a file, hashing
it, then looks at each number of what it sends and hashes it again; the server hashes what it receives, looks at each
number, compares the digest, keeps the file, and at the end of the round it sums all of them and writes the next model,
synced.
`sha256-isolated`, `blake3-isolated`: the same with what the isolation of the trainer costs in the silo: its answer is
written to a file, as a trainer's drop, and what is looked at and hashed there is copied to another one, as a guard's
update, which is synced and sent.
"""

from __future__ import annotations

import mmap
import os
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.transport.processes import START, fork_each, shared_out
from fedsilo.files.digests import hasher

CHUNK_BYTES = 1 << 20
SUM_NUMBERS = 1 << 20
"""Numbers that are summed at a time."""

POLL_SECONDS = 0.01
"""Between two looks for the permission to begin, and two tries to connect."""

TLS, ISOLATED = "tls", "-isolated"
"""The kind in which nothing is checked, and the ending of those in which a silo's answer passes two files."""

ACKNOWLEDGEMENT_BYTE = b"\x01"
ROUNDS = "rounds"
"""File that gets a line at the end of each round."""


def main(arguments: list[str]) -> int:
    """Entry point of both programs; returns the exit code."""
    role, directory, kind, *rest = arguments
    if role == "server":
        silos, rounds, size, port = map(int, rest)
        server = FloorServer(Path(directory), kind, silos, rounds, size)
        return fork_each([[role]], lambda _: server.serve(port))
    rounds, size, port, processes = map(int, rest[:4])
    names = rest[4:]

    def work(group: list[str]) -> None:
        (name,) = group
        take_part(Path(directory), name, kind, rounds, size, port)

    return fork_each(shared_out(names, processes), work)


class FloorServer:
    """The server of one run.

    :param kind: of the floor, see above.
    :param size: bytes of the model.
    """

    def __init__(self, directory: Path, kind: str, silos: int, rounds: int, size: int) -> None:
        self._directory, self._algorithm = directory, None if kind == TLS else kind.removesuffix(ISOLATED)
        self._silos, self._rounds, self._size = silos, rounds, size
        self._model = directory / "model"
        self._all_sent = threading.Barrier(silos, self._close_round)
        with self._model.open("wb") as file:
            file.truncate(size)
        self._begin = threading.Event()

    def serve(self, port: int) -> None:
        """Accept every silo's connection, start all at once, and serve all rounds."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")
        with socket.create_server(("127.0.0.1", port), backlog=self._silos) as listener:
            threads = []
            for number in range(self._silos):
                connection = listener.accept()[0]
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._talk, args=(context, connection, number))
                thread.start()
                threads.append(thread)
            while not (self._directory / START).exists():
                time.sleep(POLL_SECONDS)
            self._begin.set()
            for thread in threads:
                thread.join()

    def _talk(self, context: ssl.SSLContext, connection: socket.socket, number: int) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as silo:
                self._begin.wait()
                for _ in range(self._rounds):
                    for piece in pieces(mapped_content(self._model)):
                        silo.sendall(piece)
                    self._receive(silo, self._update(number))
                    silo.sendall(ACKNOWLEDGEMENT_BYTE)
                    self._all_sent.wait()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _receive(self, silo: ssl.SSLSocket, path: Path) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        digest = None if self._algorithm is None else hasher(self._algorithm)
        with path.open("wb") as file:
            for piece in portions(buffer, self._size):
                fill(silo, piece)
                if digest is not None:
                    digest.update(piece)
                    require_finite(piece)
                file.write(piece)
            if digest is not None:
                found = digest.digest()
                fill(silo, buffer[: len(found)])
                if bytes(buffer[: len(found)]) != found:
                    raise ValueError(f"{path}: is not what the silo sent")
            file.flush()
            os.fsync(file.fileno())

    def _update(self, number: int) -> Path:
        return self._directory / f"update-{number}"

    def _close_round(self) -> None:
        if self._algorithm is not None:
            self._sum()
        with (self._directory / ROUNDS).open("a") as lines:
            lines.write("\n")

    def _sum(self) -> None:
        updates = [
            np.memmap(self._update(number), np.float32, "r", shape=(self._size // 4,))
            for number in range(self._silos)
        ]
        weight = np.float32(1 / self._silos)

        def one(begin: int) -> np.ndarray:
            part = slice(begin, begin + SUM_NUMBERS)
            total = updates[0][part] * weight
            for update in updates[1:]:
                total += update[part] * weight
            return total

        following = self._directory / "next"
        with ThreadPoolExecutor(os.cpu_count()) as pool, following.open("wb") as file:
            step = SUM_NUMBERS * (os.cpu_count() or 1)
            for begin in range(0, self._size // 4, step):
                for total in pool.map(one, range(begin, min(begin + step, self._size // 4), SUM_NUMBERS)):
                    file.write(total.data)
            file.flush()
            os.fsync(file.fileno())
        following.replace(self._model)


def take_part(directory: Path, name: str, kind: str, rounds: int, size: int, port: int) -> None:
    """Be one silo, to the last round."""
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    path = directory / f"silo-{name}"
    answer = _answer_of(kind, path)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with _connect_socket(port) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as server:
            for _ in range(rounds):
                answer(server, buffer, size)
                fill(server, memoryview(bytearray(len(ACKNOWLEDGEMENT_BYTE))))


def _answer_of(kind: str, path: Path) -> Callable[[ssl.SSLSocket, memoryview, int], None]:
    if kind == TLS:
        return _answer
    if kind.endswith(ISOLATED):
        return partial(_answer_isolated, path=path, digest=kind.removesuffix(ISOLATED))
    return partial(_answer_checked, path=path, digest=kind)


def _connect_socket(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:  # the server is starting
            time.sleep(POLL_SECONDS)


def _answer(server: ssl.SSLSocket, buffer: memoryview, size: int) -> None:
    for piece in portions(buffer, size):
        fill(server, piece)
    for piece in portions(buffer, size):
        server.sendall(piece)


def _answer_checked(server: ssl.SSLSocket, buffer: memoryview, size: int, path: Path, digest: str) -> None:
    _keep(server, buffer, size, path, digest)
    sent = hasher(digest)
    for piece in pieces(mapped_content(path)):
        require_finite(piece)
        sent.update(piece)
        server.sendall(piece)
    server.sendall(sent.digest())


def _answer_isolated(server: ssl.SSLSocket, buffer: memoryview, size: int, path: Path, digest: str) -> None:
    _keep(server, buffer, size, path, digest)
    drop, update, checked = path.with_suffix(".drop"), path.with_suffix(".update"), hasher(digest)
    with drop.open("wb") as file:
        for piece in pieces(mapped_content(path)):
            file.write(piece)
    with update.open("wb") as file:
        for piece in pieces(mapped_content(drop)):
            require_finite(piece)
            checked.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    for piece in pieces(mapped_content(update)):
        server.sendall(piece)
    server.sendall(checked.digest())


def _keep(server: ssl.SSLSocket, buffer: memoryview, size: int, path: Path, digest: str) -> None:
    """Write what the server sends to a file, hashing it."""
    received = hasher(digest)
    with path.open("wb") as file:
        for piece in portions(buffer, size):
            fill(server, piece)
            received.update(piece)
            file.write(piece)


def portions(buffer: memoryview, size: int) -> Iterator[memoryview]:
    """The buffer again and again, the last time only a part of it, until it is so many bytes."""
    for begin in range(0, size, len(buffer)):
        yield buffer[: size - begin]


def fill(connection: ssl.SSLSocket, buffer: memoryview) -> None:
    """Receive until the buffer is full.

    :raises ConnectionError: when the other side ends before.
    """
    filled = 0
    while filled < len(buffer):
        count = connection.recv_into(buffer[filled:])
        if count == 0:
            raise ConnectionError(f"the other side ended after {filled} of {len(buffer)} bytes")
        filled += count


def pieces(content: memoryview) -> Iterator[memoryview]:
    """The content, a piece at a time."""
    for begin in range(0, len(content), CHUNK_BYTES):
        yield content[begin : begin + CHUNK_BYTES]


def require_finite(piece: memoryview) -> None:
    """Look at every number.

    :raises ValueError: for NaN and infinity.
    """
    if not np.isfinite(np.frombuffer(piece, np.float32)).all():
        raise ValueError("NaN or infinity")


def mapped_content(path: Path) -> memoryview:
    """The content of a file, mapped as long as it is used."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
