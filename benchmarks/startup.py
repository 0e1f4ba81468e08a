"""Seconds that a run with separate processes takes to begin and to end, and the memory of its trainers.

    python -m benchmarks.startup           # 4, 8 and 32 silos
    python -m benchmarks.startup 16

One round of FedAvg with LeNet on scikit-learn's digits: next to no training, so that what is counted is processes. Run
it on a machine that does nothing else, from the repository's root, on Linux, where a process can be asked for its
proportional set size: pages that n processes share count 1/n for each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

POLL_SECONDS = 0.01


@dataclass
class Times:
    """Seconds since the command was typed, CPU seconds of all processes, and MB of a trainer on average."""

    silos: int
    first_task: float = 0.0
    all_tasks: float = 0.0
    round_1: float = 0.0
    end: float = 0.0
    cpu: float = 0.0
    trainer: float = 0.0

    def row(self) -> str:
        """A line of the page's table."""
        times = (self.first_task, self.all_tasks, self.round_1, self.end, self.cpu)
        return (
            f"| {self.silos} | " + " | ".join(f"{value:.1f}" for value in times) + f" | {self.trainer:.0f} |"
        )


def measure(silos: int) -> Times:
    """Run the job once."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "job.yaml").write_text(yaml.safe_dump_all(documents(silos), sort_keys=False))
        command = [sys.executable, "-m", "fedsilo.cli.main", "run", "--json", "-f", f"{directory}/job.yaml"]
        began, times = time.monotonic(), Times(silos)
        before = _cpu_seconds()
        with (directory / "out").open("w") as output:
            process = subprocess.Popen(
                [*command, "--workdir", f"{directory}/run"], stdout=output, stderr=output
            )
        while process.poll() is None:
            _poll(directory / "run", times, time.monotonic() - began)
            time.sleep(POLL_SECONDS)
        times.end, times.cpu = time.monotonic() - began, _cpu_seconds() - before
        if process.returncode != 0:
            raise SystemExit((directory / "out").read_text())
        return times


def _poll(run: Path, times: Times, now: float) -> None:
    tasks = len(list(run.glob("silos/*/inbox/task.json")))
    if tasks and not times.first_task:
        times.first_task = now
    if tasks == times.silos and not times.all_tasks:
        times.all_tasks = now
        times.trainer = _trainers_megabytes(run)
    if not times.round_1 and (run / "aggregator/history.jsonl").exists():
        times.round_1 = now


def _trainers_megabytes(run: Path) -> float:
    """Megabytes of one trainer, the mean of those that still run; one that has answered may have ended already."""
    pids = json.loads((run / "processes.json").read_text())
    sizes = []
    for name, pid in pids.items():
        if name.endswith(" trainer") and pid is not None:
            with suppress(ProcessLookupError, FileNotFoundError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                sizes += [int(line.split()[1]) / 1000 for line in rollup if line.startswith("Pss:")]
    return sum(sizes) / len(sizes) if sizes else float("nan")


def _cpu_seconds() -> float:
    """CPU seconds of all processes of this machine so far; the machine does no other work."""
    user, nice, system = (int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / 100


def documents(silos: int) -> list[object]:
    """The job and its silos."""
    api = "fedsilo.io/v1alpha1"
    split = {"scheme": "dirichlet", "silos": silos, "seed": 0, "config": {"beta": 5.0}}
    members = [
        {
            "apiVersion": api,
            "kind": "Silo",
            "metadata": {"name": f"s{index}", "namespace": f"silo-{index}"},
            "spec": {
                "datasets": [
                    {
                        "name": "digits",
                        "loader": "sklearn:digits",
                        "config": {"split": "train"},
                        "partition": {**split, "index": index},
                    }
                ]
            },
        }
        for index in range(silos)
    ]
    test = {"name": "test", "loader": "sklearn:digits", "config": {"split": "test"}}
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": "lenet", "config": {"padding": 2}},
        "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8], "validationFraction": 0.1},
        "training": {"rounds": 1, "localEpochs": 1, "batchSize": 32, "optimizer": {"learningRate": 0.05}},
        "silos": {"refs": [member["metadata"] for member in members]},
        "participation": {"roundDeadline": "10m"},
        "evaluation": {"testDataset": "test"},
        "aggregator": {"datasets": [test]},
    }
    metadata = {"name": "startup", "namespace": "federation"}
    return [*members, {"apiVersion": api, "kind": "FederatedJob", "metadata": metadata, "spec": spec}]


def main() -> None:
    """Print the page's table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("silos", type=int, nargs="*", default=[4, 8, 32])
    print("| silos | first task | all tasks | round 1 | end | CPU | a trainer, MB |")
    print("|---|---|---|---|---|---|---|")
    for silos in parser.parse_args().silos:
        print(measure(silos).row(), flush=True)


if __name__ == "__main__":
    main()
