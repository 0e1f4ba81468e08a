"""From a cell of a table to the manifest of a job."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.tables.datasets import DATASETS
from benchmarks.tables.definition import Layer, TableSelection, merge_layers, merge_patch
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.errors import FedsiloError
from fedsilo.methods import registry
from fedsilo.payload_kinds import KINDS
from fedsilo.validation import registry_faults

LOADER = "python:benchmarks.tables.datasets:load"
NAMESPACE = "federation"
USERS = "users"
"""Scheme of a partition that the dataset has of itself, and no manifest makes: the loader is told whose images."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One row, one column and one seed at one scale.

    :param settings: everything that decides the result: silos, data, partition, job, seed, and what makes a row a
        reference (`Row.references`).
    """

    row: str
    column: str
    seed: int
    settings: dict[str, Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the cell's settings; a changed setting is another cell.

        Where data lie and what computes is no part of the settings.
        """
        text = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.settings["job"]["method"]["name"])

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return str(self.settings["data"]["dataset"])

    def missing_reason(self) -> str | None:
        """Why the cell cannot be run by anybody: its method does not exist."""
        known = self.method in registry.names()
        return None if known else f"the method {self.method} is not there"

    def documents(self, folder: Path, device: str) -> list[dict[str, Any]]:
        """The silos and the job as a manifest has them.

        :param folder: of the datasets.
        """
        parts = [None] if self.settings.get("pooled") else range(self._count)
        silos = [_silo(number, self._source(folder, "train", part)) for number, part in enumerate(parts)]
        spec = merge_patch(self.settings["job"], {"training": {"seed": self.seed, "device": device}})
        refs = [silo["metadata"] for silo in silos]
        classes, shape = DATASETS[self.dataset].classes, list(DATASETS[self.dataset].shape)
        spec = merge_patch(
            {"data": {"classes": classes, "inputShape": shape, "validationFraction": 0}}, spec
        ) | {
            "silos": {"refs": refs},
            "aggregator": {"datasets": self._at_aggregator(folder)},
        }
        if "public" in self.settings:
            spec = merge_patch(spec, {"aggregation": {"publicDataset": "public"}})
        spec["data"]["dataset"] = "images"
        tested = {} if self._divides_the_model(spec) else {"testDataset": "test"}
        spec["evaluation"] = {**tested, **spec.get("evaluation", {})}
        job = {"metadata": {"namespace": NAMESPACE, "name": "cell"}, "spec": spec}
        return [*silos, {"apiVersion": "fedsilo.io/v1alpha1", "kind": "FederatedJob", **job}]

    def manifest(self, folder: Path, device: str) -> JobManifest:
        """The manifest, checked as `fedsilo validate` does.

        :raises FedsiloError: with everything that is wrong with it.
        """
        *silos, job = self.documents(folder, device)
        name = f"{self.row}, {self.column}"
        found = JobManifest(
            name, FederatedJob.model_validate(job), tuple(Silo.model_validate(silo) for silo in silos)
        )
        if faults := registry_faults(found):
            raise FedsiloError("; ".join(str(fault) for fault in faults))
        return found

    @property
    def _count(self) -> int:
        return int(self.settings["silos"])

    def _division(self) -> dict[str, Any]:
        return {"silos": self._count, "seed": self.seed, **self.settings["partition"]}

    def _divides_the_model(self, spec: dict[str, Any]) -> bool:
        """Whether silos keep a part of the model, so that nobody else can score it."""
        if self.method not in registry.names():
            return False
        return registry.bind(FederatedJobSpec.model_validate(spec)).models.shared.parameters is not None

    def _at_aggregator(self, folder: Path) -> list[dict[str, Any]]:
        """The test images, and public ones where the row has some."""
        found = [{"name": "test", **self._source(folder, "test")}]
        if public := self.settings.get("public"):
            config = {**self.settings["data"], **public, "folder": str(folder), "split": "train"}
            config.pop("testSamples", None)
            division = self._division()
            if "left" in public:
                config |= {"users": self._count} if division["scheme"] == USERS else {"division": division}
            elif "samples" not in public:
                config.pop("samples", None)
            found.append({"name": "public", "loader": LOADER, "config": config})
        return found

    def _source(self, folder: Path, split: str, silo: int | None = None) -> dict[str, Any]:
        """A loader, its config and a silo's partition; the division is there where it decides how images are turned.

        :param silo: its number; None for the test images, which no silo has, and for those of all silos together.
        """
        division = self._division()
        config = {key: value for key, value in self.settings["data"].items() if key != "testSamples"}
        if split == "test":
            config["samples"] = self.settings["data"].get("testSamples")
        config |= {"folder": str(folder), "split": split}
        together = split == "train" and silo is None
        if config.get("rotated") or together:
            config["division"] = division
        if together:
            config["pooled"] = True
        if division["scheme"] == USERS:
            return {"loader": LOADER, "config": config | {"users": self._count, "user": silo}}
        source: dict[str, Any] = {"loader": LOADER, "config": config}
        return source if silo is None else source | {"partition": division | {"index": silo}}


def cells(chosen: TableSelection, seeds: int) -> list[Cell]:
    """All cells that are asked for, seed by seed, so that whole tables come early."""
    table, reduced = chosen.table, chosen.scale == "reduced"
    columns = dict.fromkeys(name for column in chosen.columns for name in table.measured_columns(column))
    found = []
    for seed in range(seeds):
        for column in columns:
            for title in chosen.rows:
                row = chosen.paper.rows[title]
                method = Layer(job={"method": {"name": row.method, "config": row.config}})
                where = table.columns[column]
                layers = [table, where, row, method, where.rows.get(title, Layer())]
                if reduced:
                    layers += [table.reduced, where.reduced, row.reduced]
                settings = merge_layers(layers) | {"seed": seed} | row.references
                found.append(Cell(title, column, seed, settings))
    return found


def _silo(index: int, dataset: dict[str, Any]) -> dict[str, Any]:
    policy = {"payloadKinds": list(KINDS), "minSamplesPerClass": 1, "personalAccuracy": "PerSilo"}
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": NAMESPACE, "name": f"s{index:03d}"},
        "spec": {"datasets": [dataset | {"name": "images"}], "policy": policy},
    }
