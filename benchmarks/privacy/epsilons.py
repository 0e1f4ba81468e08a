"""Stated epsilons beside those of an accountant that counts the steps which a simulated job really takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.privacy.recorder import recording
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.simulation.simulate import open_simulation

CLASSES, WIDTH = 3, 6
STAGES = {"clusters": 2, "encoderRounds": 2, "classifierRounds": 3}
RELEASED_STAGES = STAGES | {"variant": "released"}
KINDS = ["model", "class_counts", "class_means", "class_covariances"]
FEATURE_NORM = 4.0
GRADIENT_NORM = 0.7


@dataclass(frozen=True)
class Configuration:
    """A job, and how many records each of its silos has.

    :param training: fields of `spec.training` but for the rounds.
    """

    method: str
    training: Mapping[str, Any]
    epsilon: float = 3.0
    delta: float = 1e-3
    config: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 5
    records: tuple[int, ...] = (120, 300)
    unit: str = "example"

    @property
    def title(self) -> str:
        """A line for people."""
        more = [f"{name} {value}" for name, value in self.config.items() if name in ("variant", "covariance")]
        steps = ", ".join(f"{name} {value}" for name, value in self.training.items())
        unit = ["persons"] if self.unit == "person" else []
        return f"{' '.join([self.method, *more, *unit])}: {steps}"


CONFIGURATIONS = (
    Configuration("fedavg", {"batchSize": 20}),
    Configuration("fedavg", {"batchSize": 10, "localSteps": 7}, 1.0, 1e-4),
    Configuration("fedavg", {"batchSize": 5, "localEpochs": 2}, 0.1, 1e-4, rounds=3),
    Configuration("fedavg", {"batchSize": 60, "localSteps": 1}, 8.0, 1e-5),
    Configuration("fedavg", {"batchSize": 8, "gradientAccumulation": 3, "minSteps": 9}, 2.0),
    Configuration("fedavg", {"batchSize": 10}, 3.0, unit="person", records=(40, 90)),
    Configuration("fedavgm", {"batchSize": 30, "localEpochs": 3}, 0.5),
    Configuration("fedopt", {"batchSize": 120, "localSteps": 2}, 4.0),
    Configuration("fedaws", {"batchSize": 15, "localSteps": 4}, 3.0, config={"steps": 3}),
    Configuration("tau-norm", {"batchSize": 25}, 2.0),
    Configuration("ccvr", {"batchSize": 20, "localSteps": 5}, 3.0),
    Configuration("ccvr", {"batchSize": 30}, 1.0, 1e-4, config={"covariance": "none"}),
    Configuration("fedconcat", {"batchSize": 20}, 3.0, config=STAGES),
    Configuration("fedconcat", {"batchSize": 20, "localSteps": 1}, 3.0, config=RELEASED_STAGES),
    Configuration("fedconcat", {"batchSize": 40, "localEpochs": 2}, 6.0, config=RELEASED_STAGES),
    Configuration(
        "fedconcat-id", {"batchSize": 20, "localSteps": 2}, 3.0, config=RELEASED_STAGES | {"probes": 100}
    ),
)
"""One of each method with mechanisms at least, and of each form whose steps are others."""


@dataclass(frozen=True)
class EpsilonFinding:
    """One silo of a configuration.

    :param releases: "times x rate" of what was drawn, a phrase for people.
    :param stated: epsilon that the job names.
    :param counted: epsilon of what was drawn.
    """

    configuration: Configuration
    records: int
    noise: float
    releases: str
    stated: float
    counted: float

    @property
    def difference(self) -> float:
        """What part of the stated epsilon the counted one is off by."""
        return self.counted / self.stated - 1


def measure(configuration: Configuration) -> Iterator[EpsilonFinding]:
    """Simulate the job, and compose what its silos drew."""
    with TemporaryDirectory(prefix="fedsilo-") as directory:
        job = manifest(configuration, Path(directory))
        with (
            recording(GRADIENT_NORM, FEATURE_NORM) as recorded,
            closing(open_simulation(job, Path(directory), Path(directory) / "job")) as simulation,
        ):
            for _ in simulation.run():
                pass
            if simulation.failure is not None:
                raise simulation.failure
    for records, (secret, _) in zip(configuration.records, recorded.silos, strict=True):
        releases = recorded.releases(secret)
        counted = recorded.epsilon(secret, configuration.delta)
        by_rate = sorted((rate, times) for (_, rate), times in releases.items())
        phrase = ", ".join(f"{times} x {rate:.3g}" for rate, times in by_rate)
        yield EpsilonFinding(configuration, records, min(releases)[0], phrase, configuration.epsilon, counted)


def manifest(configuration: Configuration, folder: Path) -> JobManifest:
    """The job, with silos whose examples are written into the folder."""
    rounds = configuration.rounds
    if "encoderRounds" in configuration.config:
        rounds = configuration.config["encoderRounds"] + configuration.config["classifierRounds"]
    names = [f"s{place}" for place in range(len(configuration.records))]
    privacy = {
        "unit": configuration.unit,
        "epsilon": configuration.epsilon,
        "delta": configuration.delta,
        "maxGradNorm": GRADIENT_NORM,
        "maxFeatureNorm": FEATURE_NORM,
    }
    spec = {
        "method": {"name": configuration.method, "config": dict(configuration.config)},
        "model": {"name": "mlp", "config": {"hidden": [5]}},
        "data": {"dataset": "data", "classes": CLASSES, "inputShape": [WIDTH], "validationFraction": 0},
        "training": {"rounds": rounds, "device": "cpu", **configuration.training},
        "silos": {"refs": [{"namespace": "silos", "name": name} for name in names]},
        "evaluation": {"every": 1000, "testDataset": "test"},
        "aggregator": {"datasets": [_dataset(folder, "test", 30, "example")]},
        "privacy": {"minSamplesPerClass": 1, "differentialPrivacy": privacy},
    }
    silos = tuple(
        Silo.model_validate(
            {
                "metadata": {"namespace": "silos", "name": name},
                "spec": {
                    "datasets": [{**_dataset(folder, name, records, configuration.unit), "name": "data"}],
                    "policy": {"payloadKinds": KINDS, "minSamplesPerClass": 1},
                },
            }
        )
        for name, records in zip(names, configuration.records, strict=True)
    )
    metadata = {"namespace": "federation", "name": "epsilons"}
    return JobManifest("epsilons", FederatedJob.model_validate({"metadata": metadata, "spec": spec}), silos)


def _dataset(folder: Path, name: str, records: int, unit: str) -> dict[str, Any]:
    """Write a random dataset of so many records and return its entry in a Silo's manifest.

    A record is one example, or a person with one to three examples.
    """
    rng = np.random.default_rng(records)
    whose = np.repeat(np.arange(records), rng.integers(1, 4, records) if unit == "person" else 1)
    labels = np.arange(len(whose)) % CLASSES
    features = (rng.normal(0, 0.3, (len(whose), WIDTH)) + np.eye(WIDTH)[labels]).astype(np.float32)
    np.savez(folder / f"{name}.npz", features=features, labels=labels, persons=whose)
    config = {"path": str(folder / f"{name}.npz"), "features": "features", "labels": "labels"}
    if unit == "person":
        config["person"] = "persons"
    return {"name": name, "loader": "npz", "config": config}


def table(found: Sequence[EpsilonFinding]) -> str:
    """A line for each silo."""
    rows = [
        "| job | delta | records | noise | drawn: times x rate | stated | counted | difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {each.configuration.title} | {each.configuration.delta:g} | {each.records} | {each.noise:.3f} "
        f"| {each.releases} | {each.stated:g} | {each.counted:.5f} | {each.difference:+.3%} |"
        for each in found
    ]
    return "\n".join(rows)
