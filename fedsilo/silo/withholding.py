"""Which words leave a silo beside its updates: where a job protects single values, none that a trainer has chosen.

A trainer sees the data and writes texts: why it failed, what its data are called. A text can carry any value of the
data past noise, masks and ledger. So wherever these are to protect a value, the silo says a reason of a list, in the
words of this module, and of the names in its data those that stand in the job or in the institution's own manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.catalogue import loader_config
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.table_columns import encoder_of
from fedsilo.data.table_configuration import TableConfig

TRAINER_ERROR: Final = "TrainerError"

_TRAINER: Final = "the trainer failed"

SENTENCES: Final[Mapping[str, str]] = {
    "AuditBroken": "the audit log is not as the guard wrote it; a person must look at it",
    "BudgetExceeded": "the institution's privacy budget has no room for this update",
    "DataInvalid": "the dataset cannot be read, or is not what the job says",
    "ExchangeRefused": "the task is of an exchange that the job does not have, or that is over or answered already",
    "FileDamaged": "a file of the silo's volume is damaged",
    "InternalError": "the silo has failed unexpectedly",
    "ManifestInvalid": "the job cannot be run as it is written",
    "MethodError": "the method or the model does not keep its declaration, or training diverged",
    "PolicyRefused": "the silo's policy or the task's contract forbids what was asked for or handed over",
    "ProtocolProblem": "a message of the protocol was refused",
    "QuorumLost": "too few silos are left in this sum",
    "StorageFailed": "a disk does not take or give what it should",
    TRAINER_ERROR: _TRAINER,
    "TrainerLost": "the trainer has ended for good",
    "WorkdirConflict": "a directory of the silo belongs to something else",
}
"""Every reason that leaves a silo, and what the silo says of it where it may say no more."""

REMEDY: Final = "no other text leaves the silo, whose own log says more"


def withholds_texts(spec: FederatedJobSpec, silo: Silo) -> bool:
    """Whether nothing that a trainer has written may leave the silo but contracted tensors and figures.

    It is so with secure aggregation, with differential privacy of whatever unit, and where the institution has a
    privacy budget for the dataset.
    """
    private = spec.privacy.differential_privacy is not None or spec.aggregation.secure
    return private or silo.spec.policy.budget_of(spec.data.dataset) is not None


def listed_reason(reason: str) -> str:
    """The reason itself where it is one of the list, otherwise that the trainer failed."""
    return reason if reason in SENTENCES else TRAINER_ERROR


def sentence(reason: str) -> str:
    """What is told of a reason of the list where nothing else may be."""
    return f"{SENTENCES[reason]}; {REMEDY}"


def vouched_schema(schema: Schema, spec: FederatedJobSpec, silo: Silo) -> Schema | None:
    """What of a trainer's schema the job or the institution's manifest says too.

    :returns: None where the classes are not the job's: there is nothing to compare, since the trainer has failed.
    :raises ManifestInvalid: when the institution's manifest of the dataset cannot be used.
    """
    data = spec.data
    if data.class_names is not None and schema.classes != data.class_names:
        return None
    columns, target = _configured_columns(silo.spec.datasets, data.dataset)
    return replace(
        schema,
        classes=data.class_names,
        columns=columns if columns == schema.columns else None,
        target=schema.target if schema.target in target else None,
        channels=schema.channels if schema.channels == data.input_shape[0] else None,
        value_range=None,
    )


def _configured_columns(
    datasets: Iterable[DatasetSpec], name: str
) -> tuple[tuple[TableColumn, ...] | None, tuple[TableColumn, ...]]:
    """The columns that the institution lists for a table, None where it does not, and what its target may be.

    :raises ManifestInvalid: when its manifest cannot be used.
    """
    dataset = next((dataset for dataset in datasets if dataset.name == name), None)
    config = None if dataset is None else loader_config(dataset)
    if not isinstance(config, TableConfig):
        return None, ()
    names = config.columns
    columns = (
        None if names is None else tuple(encoder_of(name, config, False).schema_column for name in names)
    )
    (target, *more) = config.targets
    return columns, () if more else (TableColumn(target, "number"), TableColumn(target, "category"))
