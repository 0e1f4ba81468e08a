"""What `fedsilo verify` reads, as bytes: a file as it came, and lines that their forger has linked and sealed again."""

from __future__ import annotations

import base64
import re
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

from fedsilo.engine.provenance import ENDING, OPENING
from fedsilo.verification.chain import verify
from fedsilo.verification.place import find
from fedsilo.wire import ChainEnd, seal_chain
from tests.federate import TASK_KEY, federate, job_spec
from tests.unit.engine.synthetic import synthetic_runners

_FILES = ("provenance.json", "model.safetensors", "model.json")


@cache
def released_files() -> dict[str, bytes]:
    """Name -> content of what a small job has released."""
    with tempfile.TemporaryDirectory() as folder:
        spec = job_spec("fedavg", 2)
        federate(Path(folder), spec, synthetic_runners(spec))
        return {name: (Path(folder) / "aggregator" / name).read_bytes() for name in _FILES}


def lines() -> bytes:
    """The lines of its chain."""
    content = released_files()["provenance.json"]
    return content[len(OPENING) : content.rindex(ENDING)]


def parse(data: bytes) -> object:
    """Verify a provenance beside the model of another."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for name, content in (released_files() | {"provenance.json": data}).items():
            (Path(folder) / name).write_bytes(content)
        return verify(find(Path(folder)), {})


def parse_linked(data: bytes) -> object:
    """Read a provenance file whose lines each name the one before, under the seal of the job's key."""
    linked = [b""]
    for line in data.split(b",\n"):
        before = sha256(linked[-1]).hexdigest().encode() if len(linked) > 1 else b"0" * 64
        linked.append(re.sub(rb'"previous":"[0-9a-f]{64}"', b'"previous":"%s"' % before, line))
    end = ChainEnd("job-uid", len(linked) - 1, sha256(linked[-1]).digest())
    seal = base64.b64encode(seal_chain(end, TASK_KEY))
    return parse(OPENING + b",\n".join(linked[1:]) + ENDING + seal + b'"}\n')
