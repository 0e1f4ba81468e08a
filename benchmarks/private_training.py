"""A round with differential privacy of examples beside a plain one: processor time and peak memory of a simulated silo.

    python -m benchmarks.private_training
    python -m benchmarks.private_training --networks mlp --batch 128 --turns 5

Networks of 10 MB; 640 images of 3 x 32 x 32 in ten classes, one epoch a round by SGD with momentum. Plain and private
processes take turns. Each simulates a job of one round twice, and then one of several; a round is what the others took,
over their number: steps, the trial of the network, and all that an aggregator does. The peak is that of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from torch import nn

import fedsilo
from fedsilo.learning.models import Model

EXAMPLES, CLASSES, SHAPE = 640, 10, (3, 32, 32)
MORE_ROUNDS = 3


def mlp(_input_shape: tuple[int, ...], classes: int) -> Model:
    """2.5 million weights in three linear layers."""
    layers = (nn.Flatten(), nn.Linear(3072, 700), nn.ReLU(), nn.Linear(700, 500), nn.ReLU())
    return Model(nn.Sequential(*layers), nn.Linear(500, classes))


def convolutional(_input_shape: tuple[int, ...], classes: int) -> Model:
    """2.3 million weights in eight convolutions with GroupNorm."""
    layers, channels = list[nn.Module](), 3
    for width, pooled in ((32, 1), (64, 1), (128, 0), (128, 1), (256, 0), (256, 1), (256, 0), (256, 0)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pooled else []
        channels = width
    encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Model(encoder, nn.Linear(channels, classes))


NETWORKS = ("mlp", "convolutional")
PRIVACY = {"differentialPrivacy": {"unit": "example", "noiseMultiplier": 1.0, "delta": 0.0001}}


def manifest(network: str, batch: int, rounds: int, privacy: Mapping[str, Any]) -> str:
    """One job, and its silo."""
    job = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"namespace": "research", "name": "private"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": f"python:benchmarks.private_training:{network}"},
            "data": {
                "dataset": "images",
                "classes": CLASSES,
                "inputShape": list(SHAPE),
                "validationFraction": 0.0,
            },
            "training": {
                "rounds": rounds,
                "batchSize": batch,
                "optimizer": {"learningRate": 0.01, "momentum": 0.9},
            },
            "evaluation": {"testDataset": "images"},
            "aggregator": {"datasets": [DATASET]},
            "privacy": dict(privacy),
            "silos": {"refs": [{"namespace": "one", "name": "one"}]},
        },
    }
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": "one", "name": "one"},
        "spec": {"datasets": [DATASET]},
    }
    return yaml.safe_dump_all([job, silo])


DATASET = {"name": "images", "loader": "npy", "config": {"features": "images.npy", "labels": "labels.npy"}}


def measure_round(network: str, batch: int, private: bool) -> dict[str, float]:
    """CPU seconds of a round in this process, and the peak in MB."""
    privacy, seconds = PRIVACY if private else {}, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = np.random.default_rng(0).normal(size=(EXAMPLES, *SHAPE)).astype(np.float32)
        np.save(folder / "images.npy", images)
        np.save(folder / "labels.npy", np.arange(EXAMPLES) % CLASSES)
        for number, rounds in enumerate((1, 1, 1 + MORE_ROUNDS)):
            file = folder / f"job{number}.yaml"
            file.write_text(manifest(network, batch, rounds, privacy))
            began = time.process_time()
            fedsilo.simulate(file, folder / f"run{number}", display=False)
            seconds.append(time.process_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"seconds": (seconds[2] - seconds[1]) / MORE_ROUNDS, "peak": peak}


def measure_in_process(network: str, batch: int, private: bool) -> dict[str, float]:
    """What `measure_round` finds in a process of its own."""
    code = f"print(json.dumps(measure_round({network!r}, {batch}, {private})))"
    code = f"import json; from benchmarks.private_training import measure_round; {code}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a row per network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    print("| network | batch | plain, s | private, s | ratio | plain, MB | private, MB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for network in args.networks:
        turns = [
            [measure_in_process(network, args.batch, private) for private in (False, True)]
            for _ in range(args.turns)
        ]
        plain, private = (statistics.median(turn[way]["seconds"] for turn in turns) for way in (0, 1))
        ratio = statistics.median(turn[1]["seconds"] / turn[0]["seconds"] for turn in turns)
        peaks = [max(turn[way]["peak"] for turn in turns) for way in (0, 1)]
        seconds = f"{plain:.2f} | {private:.2f} | {ratio:.1f}"
        print(f"| `{network}` | {args.batch} | {seconds} | {peaks[0]:.0f} | {peaks[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
