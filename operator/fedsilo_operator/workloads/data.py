"""Datasets and initial weights on volumes: mounted read-only, each under its own name, where relative paths begin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedsilo.api.datasets import DatasetSpec, VolumeSpec
from fedsilo.api.parameters import InitialWeightsSpec
from fedsilo_operator.workloads.pod import DATA, Mount


def dataset_mounts(datasets: Iterable[DatasetSpec]) -> Iterator[Mount]:
    """One for each dataset that has a volume; the others are in the image."""
    for position, dataset in enumerate(datasets):
        if dataset.volume is not None:
            yield Mount(f"data-{position}", _source(dataset.volume), f"{DATA}/{dataset.name}")


def initial_weights_mount(given: InitialWeightsSpec | None) -> Iterator[Mount]:
    """The claim with the job's initial weights, if there is one, under a name that no dataset can have."""
    if given is not None and given.persistent_volume_claim is not None:
        claim = {"claimName": given.persistent_volume_claim, "readOnly": True}
        yield Mount("initial-weights", {"persistentVolumeClaim": claim}, f"{DATA}/initial_weights")


def _source(volume: VolumeSpec) -> Mapping[str, Any]:
    if volume.persistent_volume_claim is None:
        return {"hostPath": {"path": volume.host_path}}
    return {"persistentVolumeClaim": {"claimName": volume.persistent_volume_claim, "readOnly": True}}
