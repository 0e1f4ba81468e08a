"""Every method of the registry, in each of its forms, as a small job over silos that differ in their classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from fedsilo.api.common import Metadata
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.methods import registry
from fedsilo.silo.runner import TaskRunner
from tests.federate import job_spec, runners, silo_holding

ROUNDS = 3
CLUSTER_CONFIG = {"clusters": 2, "encoderRounds": 1, "classifierRounds": 2}
STUDENT = {"steps": 10, "batchSize": 4, "learningRate": 0.05}
DISTILLATION_CONFIG = {"samples": 2, "epochs": 2, "batchSize": 4, "averageAfter": 2, "averageEvery": 1}
RETRAIN_CONFIG = {"featuresPerClass": 3, "matchSteps": 3, "retrain": 5}

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedconcat": ("fedconcat", CLUSTER_CONFIG),
    "fedconcat-released": ("fedconcat", CLUSTER_CONFIG | {"variant": "released", "warmStart": True}),
    "fedconcat-elbow-capped": ("fedconcat", CLUSTER_CONFIG | {"choice": "elbow", "sizeCapped": True}),
    "fedconcat-id": ("fedconcat-id", CLUSTER_CONFIG | {"probes": 200}),
    "fedconcat-id-released": (
        "fedconcat-id",
        CLUSTER_CONFIG | {"encoderRounds": 2, "classifierRounds": 1, "variant": "released"},
    ),
    "ccvr": ("ccvr", {}),
    "ccvr-diagonal": ("ccvr", {"covariance": "diagonal", "relu": True, "tukeyBeta": 0.5}),
    "ccvr-proportional": ("ccvr", {"proportional": True, "weightDecay": 0.01, "momentum": 0}),
    "ccvr-means": ("ccvr", {"covariance": "none"}),
    "ccvr-after-creff": ("ccvr", {"after": {"name": "creff", "config": RETRAIN_CONFIG}}),
    "creff": ("creff", RETRAIN_CONFIG),
    "creff-released": ("creff", RETRAIN_CONFIG | {"variant": "released"}),
    "clsnorm": ("clsnorm", {}),
    "clsprox": ("clsprox", {"mu": 0.5}),
    "fedlc": ("fedlc", {}),
    "fedlc-released": ("fedlc", {"variant": "released"}),
    "feddf": ("feddf", STUDENT),
    "feddf-probabilities": (
        "feddf",
        {"steps": 5, "batchSize": 4, "ensemble": "probabilities", "patience": 2},
    ),
    "fedbe": ("fedbe", DISTILLATION_CONFIG),
    "fedbe-dirichlet": ("fedbe", DISTILLATION_CONFIG | {"distribution": "dirichlet"}),
    "ratio-loss": ("ratio-loss", {}),
    "fedprox": ("fedprox", {"mu": 0.5}),
    "fedprox-released": ("fedprox", {"mu": 0.5, "variant": "released"}),
    "fedrep": ("fedrep", {}),
    "fedrep-released": ("fedrep", {"variant": "released"}),
    "fedrep-map": ("fedrep", {"variant": "map"}),
    "fedrod": ("fedrod", {}),
    "fedrod-map": ("fedrod", {"variant": "map"}),
    "flda": ("flda", {}),
    "flda-map": ("flda", {"variant": "map"}),
    "pfedme": ("pfedme", {"personalRate": 0.01, "beta": 0.5}),
    "pfedme-map": ("pfedme", {"variant": "map", "proximalWeight": 0.1}),
    "per-fedavg": ("per-fedavg", {"metaRate": 0.005}),
    "per-fedavg-map": ("per-fedavg", {"variant": "map"}),
    "fedprox-stragglers": ("fedprox", {"stragglers": 0.5}),
    "fedphp": ("fedphp", {}),
    "fedphp-released": ("fedphp", {"variant": "released"}),
    "fedphp-mmd": ("fedphp", {"transfer": "mmd"}),
    "map": ("map", {}),
    "map-released": ("map", {"variant": "released"}),
    "map-complete": ("map", {"variant": "complete"}),
    "scamap": ("scamap", {}),
    "scamap-released": ("scamap", {"variant": "released", "transfer": "mmd"}),
    "ccvr-after-map": ("ccvr", {"after": {"name": "map", "config": {"transferWeight": 0.2}}}),
    "fedrs": ("fedrs", {"alpha": 0.5}),
    "fedrs-released": ("fedrs", {"alpha": 0.5, "variant": "released"}),
    "fedrs-complete": ("fedrs", {"variant": "complete"}),
    "fedbr": ("fedbr", {}),
    "fedbr-mixture": ("fedbr", {"pseudoData": "mixture"}),
    "fedbr-mixture-released": ("fedbr", {"pseudoData": "mixture", "variant": "released"}),
    "fedbr-component-1": ("fedbr", {"contrastWeight": 0}),
    "fedbr-component-2": ("fedbr", {"pseudoWeight": 0, "maxStep": False}),
    "fedbr-mixup": ("fedbr", {"mixup": 0.2}),
    "fedmmd": ("fedmmd", {"discrepancyWeight": 0.5}),
    "feddecorr": ("feddecorr", {}),
    "feddecorr-released": ("feddecorr", {"variant": "released"}),
    "feddecorr-fedbr": ("feddecorr", {"variant": "fedbr"}),
    "fed-focal": ("fed-focal", {}),
    "mixup": ("mixup", {}),
    "fedmix": ("fedmix", {"averaged": 3}),
    "fedmix-released": ("fedmix", {"averaged": 3, "variant": "released"}),
    "vhl": ("vhl", {"perClass": 5}),
    "vhl-fedbr": ("vhl", {"perClass": 5, "variant": "fedbr"}),
    "vhl-mixup": ("vhl", {"perClass": 5, "mixup": 0.2}),
    "dann": ("dann", {"hidden": 7}),
    "dann-released": ("dann", {"hidden": 7, "variant": "released"}),
    "groupdro": ("groupdro", {}),
    "groupdro-released": ("groupdro", {"variant": "released"}),
    "moon": ("moon", {"mu": 5}),
    "moon-released": ("moon", {"variant": "released"}),
    "moon-pool": ("moon", {"mu": 5, "previousModels": 2}),
    "tau-norm": ("tau-norm", {"tau": 0.5}),
    "tau-norm-after-ccvr": ("tau-norm", {"after": {"name": "ccvr"}}),
    "local": ("local", {}),
    "fedproto": ("fedproto", {}),
    "fedproto-map": ("fedproto", {"variant": "map"}),
    "ditto": ("ditto", {}),
    "ditto-released": ("ditto", {"variant": "released"}),
    "ditto-map": ("ditto", {"variant": "map"}),
    "dittors": ("dittors", {"alpha": 0.5}),
    "dittors-released": ("dittors", {"alpha": 0.5, "variant": "released"}),
    "scars": ("scars", {"alpha": 0.5}),
    "scars-released": ("scars", {"variant": "released"}),
    "scars-released-mask": ("scars", {"variant": "released-mask"}),
    "scaffold": ("scaffold", {}),
    "scaffold-released": ("scaffold", {"variant": "released", "serverLearningRate": 0.75}),
    "scaffold-niid-bench": ("scaffold", {"variant": "niid-bench"}),
    "scaffold-feddyn": ("scaffold", {"variant": "feddyn"}),
    "fedavgm": ("fedavgm", {}),
    "fedavgm-moon": ("fedavgm", {"variant": "moon"}),
    "fedavgm-fl-bench": ("fedavgm", {"variant": "fl-bench"}),
    "fedopt": ("fedopt", {}),
    "fedopt-released": ("fedopt", {"variant": "released"}),
    "fedopt-yogi": ("fedopt", {"optimizer": "yogi"}),
    "fedopt-adagrad": ("fedopt", {"optimizer": "adagrad"}),
    "fedopt-sgd": ("fedopt", {"optimizer": "sgd"}),
    "fednova": ("fednova", {"mu": 0.5, "serverMomentum": 0.5}),
    "fednova-released": ("fednova", {"mu": 0.5, "variant": "released"}),
    "feddyn": ("feddyn", {}),
    "feddyn-released": ("feddyn", {"variant": "released"}),
    "feddyn-map": ("feddyn", {"variant": "map"}),
    "fedcm": ("fedcm", {}),
    "fedcm-fedbr": ("fedcm", {"variant": "fedbr"}),
    "fedaws": ("fedaws", {"steps": 5}),
}
"""Name of the form -> method and configuration; all of `ROUNDS` rounds."""

KNOWN_METHODS = {method for method, _ in FORMS.values()}
FORMS |= {name: (name, {}) for name in registry.names() if name not in KNOWN_METHODS}

FIRST_FORMS = {method: form for form, (method, _) in reversed(FORMS.items())}
"""Method -> the first of its forms."""


def each_form(forms: Iterable[str] = FORMS) -> list[ParameterSet]:
    """Forms as parameters of a test; those beyond the first of a method are thorough."""
    first = FIRST_FORMS.values()
    return [
        pytest.param(form, id=form, marks=[] if form in first else [pytest.mark.thorough]) for form in forms
    ]


REDUNDANT_FORMS = {
    "fedconcat-elbow-capped",
    "ccvr-diagonal",
    "ccvr-means",
    *("clsnorm", "clsprox", "fedprox", "fedprox-released"),  # those of fedavg
    *("fedlc", "fedlc-released", "fedrs", "fedrs-released", "fedrs-complete"),
    *("fedbr-component-1", "fedbr-component-2", "fedbr-mixture-released", "fedbr-mixup"),
    *("feddf-probabilities", "fedbe-dirichlet"),
    *("moon-released", "scaffold-released", "scaffold-niid-bench"),
    *("ditto-map", "dittors", "dittors-released", "scars", "scars-released", "scars-released-mask"),
    *("fedavgm-moon", "fedavgm-fl-bench", "fedopt-released", "fedopt-yogi", "fedopt-adagrad", "fedopt-sgd"),
    *("fednova-released", "feddyn-released", "feddyn-map", "fedcm-fedbr", "fedaws"),
    "fedproto-map",
    *("fedmmd", "feddecorr", "feddecorr-released", "feddecorr-fedbr", "fed-focal", "fedmix-released"),
    *("vhl-fedbr", "vhl-mixup", "dann-released", "groupdro-released"),
    *("fedphp-released", "fedphp-mmd", "map", "map-released", "scamap-released", "ccvr-after-map"),
    *("fedrep-released", "fedrep-map", "fedrod-map", "flda-map", "pfedme-map", "per-fedavg-map"),
    "ccvr-proportional",
}
"""Forms whose rounds and files are those of another."""

COUNTING = {"statistics"}
"""Forms of one exchange in which nothing is drawn."""


def form_spec(form: str, silos: list[str], **sections: Any) -> FederatedJobSpec:
    """The job of a form."""
    method, config = FORMS[form]
    return job_spec(method, silos, ROUNDS, method={"config": config}, **sections)


def form_manifest(
    directory: Path, form: str, labels_of: dict[str, np.ndarray], spread: float = 0.3, **sections: Any
) -> JobManifest:
    """The job of a form with silos as in `holding`, for a simulation."""
    spec = form_spec(form, list(labels_of), **sections)
    job = FederatedJob(metadata=Metadata(name="job", namespace="jobs"), spec=spec)
    return JobManifest("job.yaml", job, tuple(silos_holding(directory, labels_of, spread)))


def holding(
    directory: Path, spec: FederatedJobSpec, labels_of: dict[str, np.ndarray]
) -> dict[str, TaskRunner]:
    """The runners of silos with these labels."""
    return runners(spec, silos_holding(directory, labels_of), directory)


def silos_holding(directory: Path, labels_of: dict[str, np.ndarray], spread: float = 0.3) -> list[Silo]:
    """Silos with these labels; a class's vectors lie `spread` around a unit vector."""
    rng = np.random.default_rng(0)
    silos = []
    for name, labels in labels_of.items():
        noise = rng.normal(0, spread, (len(labels), 6)) if spread else 0
        features = (noise + np.eye(6)[labels % 6]).astype(np.float32)
        silos.append(silo_holding(directory, name, features, labels.astype(np.int64)))
    return silos
