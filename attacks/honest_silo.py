"""An honest silo that asks for its next task, over one connection like a guard, and writes down how long that took.

    python -m attacks.honest_silo PORT JOB SILO KEY CA PATH PAUSE OUTPUT

It is a process of its own, so that an attacker's work does not delay its clock. A poll counts from its first try to its
answer, whatever happens to the connection in between.
"""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fedsilo.process import exit_with_parent
from fedsilo.wire import SigningKey, sign_request
from tests.integration.service.site import wait_until

PAUSE_SECONDS = 0.01
"""Time between an answer and the next poll."""


@dataclass(frozen=True)
class Poll:
    """One poll that was answered.

    :param began: `time.monotonic()` of its first try.
    """

    began: float
    seconds: float


@dataclass(frozen=True)
class PollTarget:
    """Whom the silo asks, for what, and by which key.

    :param job: as in its proofs.
    :param pause: seconds between an answer and the next poll.
    """

    port: int
    ca: str
    job: str
    silo: str
    key: SigningKey
    path: str
    pause: float = PAUSE_SECONDS


class HonestSilo:
    """The process, seen from the one that attacks."""

    def __init__(self, asked: PollTarget, folder: Path) -> None:
        self._output = folder / "polls"
        self._output.touch()
        ca, key = folder / "ca.pem", folder / "honest-key.pem"
        ca.write_text(asked.ca)
        asked.key.save(key)
        arguments = [asked.port, asked.job, asked.silo, key, ca, asked.path, asked.pause, self._output]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attacks.honest_silo", *map(str, arguments)], stdin=subprocess.PIPE
        )

    def stop(self) -> None:
        """End the honest silo's process and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def polls(self, began: float) -> list[Poll]:
        """Every poll that was under way between this time and now; returns when the last of them was answered."""
        end = time.monotonic()
        wait_until(lambda: self._last_poll_time() > end, "the honest silo's polls to be answered")
        return [poll for poll in self._read() if poll.began + poll.seconds >= began and poll.began < end]

    def _read(self) -> list[Poll]:
        lines = self._output.read_text().splitlines(keepends=True)
        return [Poll(*map(float, line.split())) for line in lines if line.endswith("\n")]

    def _last_poll_time(self) -> float:
        polls = self._read()
        return polls[-1].began if polls else 0.0


class _Poller:
    """Keeps one connection, which opens again when it was closed."""

    def __init__(self, asked: PollTarget) -> None:
        self._asked_for = asked
        tls = ssl.create_default_context(cadata=asked.ca)
        self._connection = http.client.HTTPSConnection("127.0.0.1", asked.port, context=tls, timeout=30)

    def poll(self) -> None:
        """Ask until there is an answer."""
        while not self._asked():
            self._connection.close()
            time.sleep(PAUSE_SECONDS)

    def _asked(self) -> bool:
        asked = self._asked_for
        path = asked.path
        proof = sign_request(
            asked.key, job=asked.job, sender=asked.silo, method="GET", path=path, body=None, now=time.time()
        )
        try:
            self._connection.request("GET", path, headers={"Authorization": proof})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        # 204 in the moment between two rounds.
        assert answer.status in (200, 204), answer.status
        return True


def main(arguments: list[str]) -> None:
    """Poll until the parent ends."""
    exit_with_parent()
    port, job, silo, key, ca, path, pause, output = arguments
    asked = PollTarget(
        int(port), Path(ca).read_text(), job, silo, SigningKey.load(Path(key)), path, float(pause)
    )
    poller = _Poller(asked)
    with Path(output).open("a", buffering=1) as file:
        while True:
            began = time.monotonic()
            poller.poll()
            file.write(f"{began} {time.monotonic() - began}\n")
            time.sleep(asked.pause)


if __name__ == "__main__":
    main(sys.argv[1:])
