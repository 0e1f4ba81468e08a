"""Seconds of a round with a large model: eight silos, 100 MB in either direction for each.

    python -m benchmarks.rounds
    python -m benchmarks.rounds --against ../before    # also another checkout's, by turns, and the ratios
    python -m benchmarks.rounds --megabytes 10 --silos 4
    python -m benchmarks.rounds --megabytes 1 --silos 4 --secure    # the aggregator sees sums only

Every round is that of `fedsilo run`: the real aggregator, guards and trainers, HTTPS and files. A trainer takes one
step on eight samples, so that what is counted is delivery, checks, signing, upload and the fold. A round is the time
between two lines of the aggregator's history; the first one of a run, in which its processes start, does not count.
CPU seconds are those that the run's processes have used in that time, memory is the sum of the processes' peaks of
resident memory. Run it on a machine that does nothing else, on Linux.

The other checkout needs a `.venv` of its own. Both run the same job, a run of each after the other, so that a machine
that becomes slower or faster meanwhile does so for both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
MODULE = "rounds"
"""This file's name among the modules of a run: it is copied, so that no checkout imports another's packages."""

CLASSES = 10
INPUTS = 1000

WIDTHS = {
    100: (INPUTS, 12500, 500, 10000, 100),
    10: (INPUTS, 1250, 500, 1000, 100),
    1: (INPUTS, 125, 500, 100, 100),
}
"""Layers of a model by its megabytes: about 25, 2.5 and 0.25 million weights, half of them in the first layer."""

POLL_SECONDS = 0.01


def network_100(input_shape: tuple[int, ...], classes: int) -> SimpleNamespace:
    """A model of 100 MB."""
    del input_shape
    return _network(WIDTHS[100], classes)


def network_10(input_shape: tuple[int, ...], classes: int) -> SimpleNamespace:
    """A model of 10 MB."""
    del input_shape
    return _network(WIDTHS[10], classes)


def network_1(input_shape: tuple[int, ...], classes: int) -> SimpleNamespace:
    """A model of 1 MB."""
    del input_shape
    return _network(WIDTHS[1], classes)


def _network(widths: Sequence[int], classes: int) -> SimpleNamespace:
    from torch import nn

    layers = [nn.Linear(here, there) for here, there in pairwise(widths)]
    return SimpleNamespace(encoder=nn.Sequential(*layers), classifier=nn.Linear(widths[-1], classes))


def examples() -> tuple[Any, Any]:
    """A test set of eight samples, all ones."""
    import numpy as np

    return np.ones((8, INPUTS), np.float32), np.arange(8) % CLASSES


@dataclass(frozen=True)
class Round:
    """What one round took of all processes of the run: seconds, CPU seconds, and megabytes of memory at its end."""

    seconds: float
    cpu: float
    megabytes: float


@dataclass(frozen=True)
class Checkout:
    """A working tree of the project, with its virtual environment."""

    root: Path
    python: Path

    def run(self, silos: int, rounds: int, megabytes: int, secure: bool) -> list[Round]:
        """Run the job once; all rounds but the first."""
        with tempfile.TemporaryDirectory(prefix="fedsilo-rounds-") as folder:
            directory = Path(folder)
            shutil.copyfile(__file__, directory / f"{MODULE}.py")
            (directory / "job.yaml").write_text(
                yaml.safe_dump_all(documents(silos, rounds, megabytes, secure), sort_keys=False)
            )
            command = [str(self.python), "-m", "fedsilo.cli.main", "run", "--json"]
            command += ["-f", str(directory / "job.yaml"), "--workdir", str(directory / "run")]
            with (directory / "out").open("w") as output:
                process = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    cwd=self.root,
                    env=os.environ | {"PYTHONPATH": folder},
                )
                try:
                    found = _watch(process, directory / "run")
                finally:
                    process.terminate()
                    process.wait()
            if len(found) != rounds - 1:
                raise SystemExit(f"{self.root}: the run did not end well\n{(directory / 'out').read_text()}")
            return found


def _watch(process: subprocess.Popen[bytes], run: Path) -> list[Round]:
    found: list[Round] = []
    ended: tuple[float, dict[int, float]] | None = None
    lines = 0
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        if (now := _lines(run / "aggregator" / "history.jsonl")) == lines:
            continue
        if now != lines + 1:
            raise SystemExit(f"{run}: {now - lines} rounds within {POLL_SECONDS} s; the model is too small")
        moment, cpu = time.monotonic(), _cpu_seconds(run)
        if ended is not None:
            used = sum(seconds - ended[1].get(pid, 0.0) for pid, seconds in cpu.items())
            found.append(Round(moment - ended[0], used, _peak_megabytes(run)))
        ended, lines = (moment, cpu), now
    return found


def _lines(history: Path) -> int:
    with suppress(FileNotFoundError):
        return history.read_bytes().count(b"\n")
    return 0


def _cpu_seconds(run: Path) -> dict[int, float]:
    """CPU seconds of each process of the run so far, by its number."""
    found = {}
    for pid in json.loads((run / "processes.json").read_text()).values():
        with suppress(FileNotFoundError, ProcessLookupError):
            # proc(5): fields 14 and 15 are user and system time; the second, the name, may hold spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _peak_megabytes(run: Path) -> float:
    """Sum of the processes' largest resident memory so far; proc(5), VmHWM."""
    kilobytes = 0
    for pid in json.loads((run / "processes.json").read_text()).values():
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{pid}/status").read_text()
            kilobytes += sum(
                int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")
            )
    return kilobytes / 1024


def documents(silos: int, rounds: int, megabytes: int, secure: bool = False) -> list[dict[str, Any]]:
    """The job and its silos.

    :param secure: the aggregator sees sums only.
    """
    api = "fedsilo.io/v1alpha1"
    data = {"loader": f"python:{MODULE}:examples"}
    members = [
        {
            "apiVersion": api,
            "kind": "Silo",
            "metadata": {"name": f"s{index}", "namespace": "silos"},
            "spec": {"datasets": [{"name": "data", **data}]},
        }
        for index in range(silos)
    ]
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": f"python:{MODULE}:network_{megabytes}"},
        "data": {"dataset": "data", "classes": CLASSES, "inputShape": [INPUTS]},
        "training": {"rounds": rounds, "localEpochs": 1, "batchSize": 8, "device": "cpu"},
        "silos": {"refs": [member["metadata"] for member in members]},
        "aggregation": {"secure": secure},
        "aggregator": {"datasets": [{"name": "test", **data}]},
        "evaluation": {"testDataset": "test"},
    }
    metadata = {"name": "rounds", "namespace": "federation"}
    return [*members, {"apiVersion": api, "kind": "FederatedJob", "metadata": metadata, "spec": spec}]


def row(name: str, rounds: Sequence[Round]) -> str:
    """A line of the page's table."""
    seconds = [round.seconds for round in rounds]
    cpu = statistics.median(round.cpu for round in rounds)
    spread = f"{min(seconds):.2f} | {max(seconds):.2f}"
    memory = max(round.megabytes for round in rounds)
    return (
        f"| {name} | {len(rounds)} | {statistics.median(seconds):.2f} | {spread} | {cpu:.2f} | {memory:.0f} |"
    )


def ratio(here: Sequence[Round], there: Sequence[Round]) -> str:
    """How the medians compare."""
    seconds, cpu, memory = (
        statistics.median(getattr(round, of) for round in here)
        / statistics.median(getattr(round, of) for round in there)
        for of in ("seconds", "cpu", "megabytes")
    )
    figures = f"{seconds:.3f} of the time, {cpu:.3f} of the CPU seconds, {memory:.3f} of the memory"
    return f"this checkout / the other: {figures}"


def main() -> None:
    """Print the page's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout, with its .venv")
    parser.add_argument("--silos", type=int, default=8)
    parser.add_argument("--megabytes", type=int, choices=sorted(WIDTHS), default=100, help="of the model")
    parser.add_argument("--secure", action="store_true", help="with secure aggregation")
    parser.add_argument("--rounds", type=int, default=5, help="of a run, with the first one")
    parser.add_argument("--runs", type=int, default=3, help="of each checkout")
    args = parser.parse_args()
    checkouts = {"this checkout": Checkout(ROOT, Path(sys.executable))}
    if args.against is not None:
        other = args.against.resolve()
        checkouts["the other"] = Checkout(other, other / ".venv" / "bin" / "python")
    found: Mapping[str, list[Round]] = {name: [] for name in checkouts}
    for number in range(args.runs):
        # The one that began last time is second now: neither always finds the caches that the other left.
        for name in sorted(checkouts, reverse=number % 2 == 1):
            found[name] += checkouts[name].run(args.silos, args.rounds, args.megabytes, args.secure)
            print(
                row(f"run {number + 1}, {name}", found[name][1 - args.rounds :]), file=sys.stderr, flush=True
            )
    print("| checkout | rounds | median, s | quickest | slowest | CPU, s | memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for name, rounds in found.items():
        print(row(name, rounds))
    if len(found) == 2:
        print(f"\n{ratio(*found.values())}")


if __name__ == "__main__":
    main()
