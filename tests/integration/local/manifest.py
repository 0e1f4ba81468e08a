"""Small manifests for real runs: a few silos that share the digits, and an mlp that learns them in no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT
from tests.public_examples import with_public_data

DIGITS = "sklearn:digits"
DATASETS = "tests.integration.local.datasets"
"""Dataset functions of faulty silos, see `datasets.py`."""


def silo(name: str, dataset: Mapping[str, Any] | None = None, **policy: Any) -> dict[str, Any]:
    """Document of a silo; its share of the digits unless another dataset is given."""
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": name, "namespace": f"silo-{name}"},
        "spec": {"datasets": [{"name": "digits", "loader": DIGITS, **(dataset or {})}], "policy": policy},
    }


def python(function: str, **config: Any) -> dict[str, Any]:
    """The dataset of a function in `datasets.py`."""
    return {"loader": f"python:{DATASETS}:{function}", "config": config}


def silos(*names: str) -> list[dict[str, Any]]:
    """Silos that share the digits evenly."""
    parts = [{"scheme": "iid", "silos": len(names), "index": index} for index in range(len(names))]
    return [silo(name, {"partition": part}) for name, part in zip(names, parts, strict=True)]


def job(members: Sequence[Mapping[str, Any]], **spec: Any) -> dict[str, Any]:
    """A job of two rounds; keyword arguments are merged into its spec, mapping by mapping."""
    base: dict[str, Any] = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp", "config": {"hidden": [16]}},
        "data": {"dataset": "digits", "classes": 10, "inputShape": [1, 8, 8]},
        "training": {"rounds": 2, "device": "cpu", "optimizer": {"learningRate": 0.1}},
        "silos": {
            "refs": [{key: member["metadata"][key] for key in ("namespace", "name")} for member in members]
        },
        "participation": {"roundDeadline": "3m"},
        "evaluation": {"testDataset": "test"},
        "aggregator": {"datasets": [{"name": "test", "loader": DIGITS, "config": {"split": "test"}}]},
    }
    for field, change in spec.items():
        merge = isinstance(base.get(field), dict) and isinstance(change, Mapping)
        base[field] = {**base[field], **change} if merge else change
    base = with_public_data(base)
    metadata = {"name": "digits", "namespace": "federation"}
    return {"apiVersion": "fedsilo.io/v1alpha1", "kind": "FederatedJob", "metadata": metadata, "spec": base}


def write(path: Path, members: Sequence[Mapping[str, Any]], **spec: Any) -> Path:
    """A manifest file with these silos and one job."""
    path.write_text(yaml.safe_dump_all([*members, job(members, **spec)], sort_keys=False))
    return path


def small_quickstart(folder: Path) -> None:
    """Put a quickstart of one silo and one round into a checkout of the project, so that its commands take no time."""
    (folder / "examples").unlink()
    (folder / "examples").mkdir()
    write(folder / "examples" / "quickstart.yaml", silos("north"), training={"rounds": 1})


def shortened_example(name: str) -> str:
    """An example with its first silo alone, and as few rounds as its method can have."""
    documents = list(yaml.safe_load_all((ROOT / "examples" / name).read_text()))
    job = documents[-1]["spec"]
    job["silos"]["refs"] = job["silos"]["refs"][:1]
    job["participation"]["minSilos"] = 1
    job["training"] |= {"rounds": 1, "localEpochs": 1}
    if job["method"]["name"] == "fedconcat":
        job["training"]["rounds"] = 2
        job["method"]["config"] = {"clusters": 1, "encoderRounds": 1, "classifierRounds": 1}
    return yaml.safe_dump_all(documents)
