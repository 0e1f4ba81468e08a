"""fedsilo trains one model from institutions that may not pool their data.

    result = fedsilo.simulate("examples/quickstart.yaml")
    model = fedsilo.load_model(result.model_path)

`__all__` is all that programs and notebooks may use; docs/python.md describes it. Importing the package itself imports
neither torch nor anything else that is heavy: each name is imported when it is used.

`api` has the manifests, `wire` the signed bytes, `methods` and `transforms` what a job does, `learning`, `data`,
`tasks`, `encodings`, `privacy` and `secure_aggregation` what that is made of, `engine` the aggregator's rounds, `silo`
what runs in a silo, `simulation` both in one process, `local` a federation on one machine, `institution` and `hub` a
silo elsewhere, `verification` what is checked afterwards, `explanation`, `dashboard` and `cli` what people see. Single
modules beside them are shared by all: `errors` is the tree of error classes, `standard_streams` input and output that
may be closed, `payload_kinds` what a silo can be asked to send, `canonical` the one JSON encoding for digests and
signatures, `validation` finds the faults of a manifest that only the registries know.
"""

from __future__ import annotations

from importlib import import_module

# That of `typing`, whose import takes longer than all else here: until it is over an interruption is a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    __version__: str

    from fedsilo.api.faults import Fault
    from fedsilo.api.loading import JobManifest
    from fedsilo.errors import (
        DataInvalid,
        DeadlineExceeded,
        FedsiloError,
        ImportNotAllowed,
        JobFailed,
        ManifestInvalid,
        MethodError,
        PolicyRefused,
        QuorumLost,
        SiloFailed,
        WorkdirConflict,
    )
    from fedsilo.learning.custom_training import (
        ExampleSet,
        TrainingBudget,
        TrainingContext,
        TrainingData,
        TrainingOutcome,
    )
    from fedsilo.learning.evaluation import Evaluation, features_of
    from fedsilo.learning.models import Model
    from fedsilo.learning.saved import load_model
    from fedsilo.local.evaluation import evaluate
    from fedsilo.local.export import ExportedFile, export
    from fedsilo.local.history import History
    from fedsilo.local.library import RunResult, run, simulate, sweep
    from fedsilo.local.sweep.results import SweepResult
    from fedsilo.methods.components.local import train_model
    from fedsilo.methods.fedavg import FedAvg, FedAvgServer, OneModel, OneModelServer
    from fedsilo.methods.interface import (
        Assignment,
        Exchange,
        MethodConfig,
        Phase,
        Reply,
        ServerContext,
        SiloContext,
        SiloStep,
        SiloTask,
        Snapshot,
    )
    from fedsilo.methods.method import Method
    from fedsilo.methods.models import JobModels, OwnModel, SharedModel
    from fedsilo.methods.reading import Mean, Sums, Updates
    from fedsilo.methods.state import State, Tree
    from fedsilo.methods.step import Metric, Payload, Step
    from fedsilo.methods.traits import AveragingTraits, StateTraits, TaskTraits, TrainingTraits
    from fedsilo.tasks.interface import LearningTask
    from fedsilo.transforms.third_party.interface import TransformConfig, UpdateTransform
    from fedsilo.validation import load_manifest, validate
    from fedsilo.wire.combine import BlockMean, BlockSum, CountedMean, Quotient, SquaredDeviations
    from fedsilo.wire.tensors import TensorSpec

__all__ = [
    "Assignment",
    "AveragingTraits",
    "BlockMean",
    "BlockSum",
    "CountedMean",
    "DataInvalid",
    "DeadlineExceeded",
    "Evaluation",
    "ExampleSet",
    "Exchange",
    "ExportedFile",
    "Fault",
    "FedAvg",
    "FedAvgServer",
    "FedsiloError",
    "History",
    "ImportNotAllowed",
    "JobFailed",
    "JobManifest",
    "JobModels",
    "LearningTask",
    "ManifestInvalid",
    "Mean",
    "Method",
    "MethodConfig",
    "MethodError",
    "Metric",
    "Model",
    "OneModel",
    "OneModelServer",
    "OwnModel",
    "Payload",
    "Phase",
    "PolicyRefused",
    "QuorumLost",
    "Quotient",
    "Reply",
    "RunResult",
    "ServerContext",
    "SharedModel",
    "SiloContext",
    "SiloFailed",
    "SiloStep",
    "SiloTask",
    "Snapshot",
    "SquaredDeviations",
    "State",
    "StateTraits",
    "Step",
    "Sums",
    "SweepResult",
    "TaskTraits",
    "TensorSpec",
    "TrainingBudget",
    "TrainingContext",
    "TrainingData",
    "TrainingOutcome",
    "TrainingTraits",
    "TransformConfig",
    "Tree",
    "UpdateTransform",
    "Updates",
    "WorkdirConflict",
    "__version__",
    "evaluate",
    "export",
    "features_of",
    "load_manifest",
    "load_model",
    "run",
    "simulate",
    "sweep",
    "train_model",
    "validate",
]

_MODULES = {
    "fedsilo.api.faults": ("Fault",),
    "fedsilo.api.loading": ("JobManifest",),
    "fedsilo.errors": (
        "DataInvalid",
        "DeadlineExceeded",
        "FedsiloError",
        "ImportNotAllowed",
        "JobFailed",
        "ManifestInvalid",
        "MethodError",
        "PolicyRefused",
        "QuorumLost",
        "SiloFailed",
        "WorkdirConflict",
    ),
    "fedsilo.learning.evaluation": ("Evaluation", "features_of"),
    "fedsilo.learning.models": ("Model",),
    "fedsilo.learning.custom_training": (
        "ExampleSet",
        "TrainingBudget",
        "TrainingContext",
        "TrainingData",
        "TrainingOutcome",
    ),
    "fedsilo.learning.saved": ("load_model",),
    "fedsilo.local.evaluation": ("evaluate",),
    "fedsilo.local.export": ("ExportedFile", "export"),
    "fedsilo.local.history": ("History",),
    "fedsilo.local.library": ("RunResult", "run", "simulate", "sweep"),
    "fedsilo.local.sweep.results": ("SweepResult",),
    "fedsilo.methods.fedavg": ("FedAvg", "FedAvgServer", "OneModel", "OneModelServer"),
    "fedsilo.methods.interface": (
        "Assignment",
        "Exchange",
        "MethodConfig",
        "Phase",
        "Reply",
        "ServerContext",
        "SiloContext",
        "SiloStep",
        "SiloTask",
        "Snapshot",
    ),
    "fedsilo.methods.reading": ("Mean", "Sums", "Updates"),
    "fedsilo.methods.method": ("Method",),
    "fedsilo.methods.models": ("JobModels", "OwnModel", "SharedModel"),
    "fedsilo.methods.components.local": ("train_model",),
    "fedsilo.methods.state": ("State", "Tree"),
    "fedsilo.methods.traits": ("AveragingTraits", "StateTraits", "TaskTraits", "TrainingTraits"),
    "fedsilo.methods.step": ("Metric", "Payload", "Step"),
    "fedsilo.tasks.interface": ("LearningTask",),
    "fedsilo.transforms.third_party.interface": ("TransformConfig", "UpdateTransform"),
    "fedsilo.validation": ("load_manifest", "validate"),
    "fedsilo.wire.combine": ("BlockSum", "BlockMean", "CountedMean", "Quotient", "SquaredDeviations"),
    "fedsilo.wire.tensors": ("TensorSpec",),
}
"""Module -> the public names that it holds."""

_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedsilo")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
