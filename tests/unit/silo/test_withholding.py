"""Names in a trainer's data leave only if job or manifest have them too, where single values are protected."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fedsilo import errors
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.errors import FedsiloError, ManifestInvalid
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.privacy_ledger import BudgetExceeded
from fedsilo.silo.withholding import SENTENCES, vouched_schema
from fedsilo_agent.guard.exchanges import ExchangeRefused
from tests.paths import ROOT

LISTED_COLUMNS: dict[str, Any] = {
    "path": "a.csv",
    "target": "default",
    "columns": ["age", "colour"],
    "categories": {"colour": ["red", None]},
}
COLUMNS = (TableColumn("age", "number"), TableColumn("colour", "category", ("red", "null")))


def job(classes: Any = 3) -> FederatedJobSpec:
    return FederatedJobSpec.model_validate(
        {
            "method": {"name": "fedavg"},
            "model": {"name": "mlp"},
            "data": {"dataset": "loans", "classes": classes, "inputShape": [3]},
            "training": {"rounds": 1},
            "silos": {"refs": [{"namespace": "a", "name": "b"}]},
        }
    )


def silo(config: dict[str, Any], loader: str = "csv") -> Silo:
    dataset = {"name": "loans", "loader": loader, "config": config}
    return Silo.model_validate({"metadata": {"name": "b", "namespace": "a"}, "spec": {"datasets": [dataset]}})


def test_columns_that_the_manifest_lists_are_compared_with_those_of_others() -> None:
    schema = Schema(
        columns=COLUMNS, target=TableColumn("default", "number"), channels=3, value_range="0 to 1"
    )
    vouched = vouched_schema(schema, job(), silo(LISTED_COLUMNS))
    assert vouched == replace(schema, value_range=None), "a range follows from values"


@pytest.mark.parametrize(
    "columns",
    [COLUMNS[::-1], (TableColumn("age", "text"), COLUMNS[1]), (*COLUMNS, TableColumn("Jane Doe", "number"))],
)
def test_other_columns_than_it_lists_stay(columns: tuple[TableColumn, ...]) -> None:
    assert vouched_schema(Schema(columns=columns), job(), silo(LISTED_COLUMNS)) == Schema()


def test_columns_that_nobody_lists_stay() -> None:
    open_config = {name: value for name, value in LISTED_COLUMNS.items() if name in ("path", "target")}
    assert vouched_schema(Schema(columns=COLUMNS), job(), silo(open_config)) == Schema()
    assert vouched_schema(Schema(columns=COLUMNS), job(), silo({"path": "a.npz"}, "npz")) == Schema()


def test_a_manifest_that_cannot_be_used_is_said_to_be_so() -> None:
    wrong = LISTED_COLUMNS | {"columns": ["age"]}
    with pytest.raises(ManifestInvalid, match=r"dataset 'loans'.*categories\.colour.*is not among columns"):
        vouched_schema(Schema(columns=COLUMNS), job(), silo(wrong))


def test_classes_are_those_of_the_job_or_nothing_is_told() -> None:
    named = job(["cat", "dog", "owl"])
    assert vouched_schema(Schema(classes=("cat", "dog", "owl")), named, silo(LISTED_COLUMNS)) is not None
    assert vouched_schema(Schema(classes=("cat", "Jane Doe")), named, silo(LISTED_COLUMNS)) is None
    assert vouched_schema(Schema(classes=("cat", "dog", "owl")), job(), silo(LISTED_COLUMNS)) == Schema()


def test_every_reason_of_a_silo_has_a_sentence() -> None:
    kinds: list[type[FedsiloError]] = [ExchangeRefused, BudgetExceeded, AuditBroken]
    kinds += [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FedsiloError)
    ]
    of_others = {"DeadlineExceeded", "JobFailed", "SiloFailed"}
    of_others |= {"ProvenanceInvalid", "ImportNotAllowed"}  # of commands that look at documents
    assert {kind.reason for kind in kinds} - of_others <= SENTENCES.keys()


def test_pages_have_every_reason_of_a_silo() -> None:
    assert f"one of {len(SENTENCES)} reasons:" in (ROOT / "docs/security.md").read_text()
    (listed,) = re.findall(
        r"Reasons that leave a silo are (.*?); ", (ROOT / "docs/errors.md").read_text(), re.DOTALL
    )
    assert re.findall(r"\w+", listed.replace(" and ", " ")) == list(SENTENCES)
