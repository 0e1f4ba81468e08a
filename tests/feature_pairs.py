"""Jobs in which features of a job meet: each feature in its variants, all pairs of these, and few jobs that cover them.

What a feature is follows from the specification's sections that it writes, laid over those of one small job. Whether
two go together is asked of the product, never listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.contradictions import contradictions
from fedsilo.api.faults import Fault
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.validation import registry_faults
from tests.federate import silo_of_file

NAME, NAMES = "features", ("north", "east", "south", "west")

PRIVACY_SPEC = {"noiseMultiplier": 1.0, "delta": 1e-3}

FEATURES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "secure sums": {"secure": {"aggregation": {"secure": True}}},
    "differential privacy": {
        "private-examples": {"privacy": {"differentialPrivacy": {"unit": "example", **PRIVACY_SPEC}}},
        "private-silos": {
            "privacy": {"differentialPrivacy": {"unit": "silo", "maxUpdateNorm": 0.5, **PRIVACY_SPEC}}
        },
    },
    "robust rule": {
        "clipping": {"aggregation": {"rule": {"name": "norm-clipping", "norm": 0.1}}},
        "median": {"aggregation": {"rule": {"name": "median"}}},
    },
    "upload": {
        "upload-int8": {"communication": {"upload": {"encoding": "int8", "block": 16}}},
        "upload-topk": {"communication": {"upload": {"encoding": "topk", "fraction": 0.25}}},
    },
    "download": {"download-bfloat16": {"communication": {"download": {"encoding": "bfloat16"}}}},
    "parameters": {
        "frozen": {"model": {"parameters": {"frozen": ["encoder.0.*"]}}},
        # The aggregator has no whole model to score.
        "local": {
            "model": {"parameters": {"local": ["classifier.*"]}},
            "evaluation": {"testDataset": None},
        },
    },
    "optimizer state": {
        "kept": {"training": {"optimizer": {"name": "adam", "learningRate": 0.01, "state": "keep"}}}
    },
    "preprocessing": {"standardised": {"data": {"preprocessing": {"standardise": True}}}},
    "evaluation": {"silos-score": {"evaluation": {"testDataset": None}}},
    "best model": {"best": {"evaluation": {"best": {"metric": "accuracy"}}}},
    "participation": {"sampled": {"participation": {"fraction": 0.75}}},
}
"""Feature -> its variants, each with the sections that it writes."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    name: sections for variants in FEATURES.values() for name, sections in variants.items()
}

ChosenVariants = frozenset[str]
"""Variants of different features that a job has."""

PAIRS: tuple[ChosenVariants, ...] = tuple(
    frozenset((one, other))
    for ones, others in combinations(FEATURES.values(), 2)
    for one in ones
    for other in others
)


def name_of(chosen: Iterable[str]) -> str:
    """A job's name, in the order of features."""
    return ".".join(variant for variant in VARIANTS if variant in chosen) or "plain"


def job_with(chosen: Iterable[str]) -> FederatedJob:
    """The small job with these variants."""
    return FederatedJob.model_validate(document_with(chosen))


def document_with(chosen: Iterable[str]) -> dict[str, Any]:
    """A job with these features, as a person writes it: four silos, two rounds, a network of two layers."""
    chosen = set(chosen)
    spec: dict[str, Any] = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [5]}},
        "data": {"dataset": "data", "classes": 4, "inputShape": [6], "validationFraction": 0.25},
        "training": {"rounds": 2, "batchSize": 8, "device": "cpu", "optimizer": {"learningRate": 0.1}},
        "silos": {"refs": [{"namespace": "silos", "name": name} for name in NAMES]},
        # What a rule, a sum and noise of silos ask for alike.
        "aggregation": {"weights": "uniform"},
        "participation": {"minSilos": 3},
        "evaluation": {"testDataset": "test"},
        "privacy": {"minSamplesPerClass": 1},
        "aggregator": {"datasets": [_test_set()], "keepUpdates": True},
    }
    for variant, sections in VARIANTS.items():
        if variant in chosen:
            spec = _laid_over(spec, sections)
    if spec["evaluation"]["testDataset"] is None:
        spec["aggregator"] = spec["aggregator"] | {"datasets": []}
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"name": NAME, "namespace": "jobs"},
        "spec": spec,
    }


def _test_set() -> dict[str, Any]:
    config = {"path": "test.npz", "features": "images", "labels": "labels"}
    return {"name": "test", "loader": "npz", "config": config}


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        known = below.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = _laid_over(known, value)
        merged[name] = value
    return merged


@cache
def faults_of(chosen: ChosenVariants) -> tuple[Fault, ...]:
    """What validation has against the job, whatever silos there are."""
    job = job_with(chosen)
    manifest = JobManifest("", job, ())
    found = [manifest.fault(job, *finding) for finding in contradictions(job)]
    return (*found, *registry_faults(manifest))


PERMITTED_PAIRS = tuple(pair for pair in PAIRS if not faults_of(pair))
REFUSED_PAIRS = tuple(pair for pair in PAIRS if faults_of(pair))


def covering(most: int = len(FEATURES)) -> Iterator[ChosenVariants]:
    """Few permitted jobs in which every permitted pair occurs, each with as many variants as go together.

    A greedy covering array: to the first pair that no job has, variants are added one by one, first the one with which
    the job has most of the pairs that are still missing; so five features and more meet in each.

    :param most: variants of a job.
    """
    missing = dict.fromkeys(PERMITTED_PAIRS)
    while missing:
        chosen = next(iter(missing))
        while len(chosen) < most and (more := _extended_choice(chosen)):
            best = max(more, key=lambda variant: sum(pair <= more[variant] for pair in missing))
            chosen = more[best]
        yield chosen
        missing = {pair: None for pair in missing if not pair <= chosen}


def _extended_choice(chosen: ChosenVariants) -> dict[str, ChosenVariants]:
    """Variants that may be added, each with the job that has it too."""
    return {variant: job for variant in VARIANTS if (job := _add_variant(chosen, variant))}


def _add_variant(chosen: ChosenVariants, variant: str) -> ChosenVariants | None:
    """The job with one variant more; None where it has that feature, or does not go together with all of them."""
    taken = [variants for variants in FEATURES.values() if variant in variants and chosen & variants.keys()]
    job = chosen | {variant}
    return None if taken or faults_of(job) else job


def manifest_in(directory: Path, chosen: Iterable[str], name: str = NAME) -> JobManifest:
    """The job and its silos, whose examples are written into the directory; a test set lies beside them.

    :param name: of the job.
    """
    rng = np.random.default_rng(0)
    for number, holder in enumerate((*NAMES, "test")):
        labels = np.repeat(np.arange(4), 8 + 2 * number)
        features = (rng.normal(0, 0.5, (len(labels), 6)) + np.eye(6)[labels]).astype(np.float32)
        np.savez(directory / f"{holder}.npz", images=features, labels=labels)
    silos = tuple(silo_of_file(directory / f"{holder}.npz", holder) for holder in NAMES)
    job = job_with(chosen)
    named = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name})})
    return JobManifest(str(directory / f"{name}.yaml"), named, silos)


def documents_in(manifest: JobManifest) -> list[dict[str, Any]]:
    """The documents of its file."""
    plain = (each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in manifest.silos)
    return [*plain, manifest.job.model_dump(mode="json", by_alias=True, exclude_none=True)]
