"""Accuracy of the founding methods at the same communication, over seeds, through real processes.

    python -m benchmarks.equal_communication > docs/results/equal-communication.md

Runs the manifests of `examples/` with several training seeds and prints a table in Markdown: accuracy with mean and
sample standard deviation, and the bytes that one silo sent and fetched, as the aggregator counted them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MANIFESTS = ("fedavg", "quickstart", "ccvr", "creff")


@dataclass(frozen=True)
class Run:
    """Accuracy and traffic of one job.

    :param traffic: bytes that a silo sent and fetched, mean over silos.
    """

    method: str
    rounds: int
    accuracy: float
    traffic: tuple[float, float]


def main() -> None:
    """Run all jobs with every seed and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    seeds = parser.parse_args().seeds
    print_header(seeds)
    for manifest in MANIFESTS:
        print(row([run(manifest, seed) for seed in seeds]), flush=True)


def print_header(seeds: list[int]) -> None:
    """What was run, where, and the table's head."""
    print("# Four methods at the same communication\n")
    print("`python -m benchmarks.equal_communication > docs/results/equal-communication.md`\n")
    print(
        "Four silos with four of the ten classes of the digits dataset each, LeNet (7,482 parameters), two local\n"
        "epochs in a round; test accuracy of the final model. The budget is that of 20 rounds of FedAvg; the other\n"
        "manifests of `examples/` have as many rounds as fit into it. FedConcat has two clusters, its rounds are\n"
        "one exchange of counts, 15 of encoders and 20 of the classifier. Nothing was tuned beyond that.\n"
    )
    print(
        f"Seeds {', '.join(map(str, seeds))}; torch {torch.__version__}, {platform.machine()}, CPU, one thread.\n"
    )
    print(
        "| method | rounds | accuracy, mean ± std | each seed | kB sent per silo | kB fetched per silo | kB in all |"
    )
    print("|---|---|---|---|---|---|---|")


def run(manifest: str, seed: int) -> Run:
    """Run one manifest of `examples/` with another seed."""
    documents = list(yaml.safe_load_all((EXAMPLES / f"{manifest}.yaml").read_text(encoding="utf-8")))
    documents[-1]["spec"]["training"]["seed"] = seed
    with tempfile.TemporaryDirectory(prefix="fedsilo-") as directory:
        file, workdir = Path(directory) / "job.yaml", Path(directory) / "run"
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        command = ["run", "-f", str(file), "--workdir", str(workdir), "--json"]
        ran = subprocess.run(
            [sys.executable, "-m", "fedsilo.cli.main", *command],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        outcome: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        status = json.loads((workdir / "aggregator" / "status.json").read_bytes())
    sent = statistics.mean(silo["bytesSent"] for silo in status["silos"])
    fetched = sum(status["fetched"].values()) / len(status["silos"])
    return Run(outcome["method"], outcome["rounds"], outcome["metrics"]["accuracy"], (sent, fetched))


def row(runs: list[Run]) -> str:
    """One line of the table."""
    accuracies = [run.accuracy for run in runs]
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    sent, fetched = (statistics.mean(run.traffic[part] for run in runs) / 1000 for part in (0, 1))
    each = ", ".join(f"{accuracy:.1%}" for accuracy in accuracies)
    return (
        f"| {runs[0].method} | {runs[0].rounds} | {statistics.mean(accuracies):.1%} ± {spread:.1%} | {each} "
        f"| {sent:,.0f} | {fetched:,.0f} | {sent + fetched:,.0f} |"
    )


if __name__ == "__main__":
    main()
