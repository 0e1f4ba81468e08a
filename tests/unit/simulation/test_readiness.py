"""The check before round 1 where one process holds all silos: the same table and the same end as over processes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedsilo.api.loading import load
from fedsilo.errors import SiloFailed
from fedsilo.local.display import display_for
from fedsilo.local.in_process import run_in_process
from fedsilo.local.workdir import RunDirectory
from fedsilo.simulation.execution import SEQUENTIAL_PLAN
from fedsilo.simulation.simulate import simulate
from tests.unit.local.test_check import manifest, write, write_datasets


def test_one_message_names_every_fault_of_every_silo(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    write(tmp_path, "south", ["plane", "bird", "cat"])
    write(tmp_path, "east", features=np.full((30, 3), np.inf))
    path = manifest(tmp_path, check="refuse")
    with pytest.raises(SiloFailed) as caught:
        simulate(load(path), tmp_path, tmp_path / "run")
    assert caught.value.reason == "DataInvalid"
    for said in (
        "the data are not ready: default/south: SchemaDiffers: class 'plane'",
        "default/east: Unreadable: dataset: dataset 'animals': item 0: features contain inf; remove or mend",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            "refuse",
            "the data are not ready: default/north: Unreadable: dataset: dataset 'animals': ",
        ),
        (None, "silo default/north: dataset 'animals': "),
    ],
)
def test_an_item_that_an_own_object_cannot_read_ends_the_job(
    tmp_path: Path, check: str | None, said: str
) -> None:
    write_datasets(tmp_path)
    path = manifest(tmp_path, inputShape=[1, 2, 3], classes=2, check=check)
    documents = list(yaml.safe_load_all(path.read_text()))
    module = "tests.unit.data.test_function_source"
    for silo, act in zip(documents[:-1], ("raise_at_7", "tensor", "tensor", "tensor"), strict=True):
        own = {"loader": f"python:{module}:volumes", "config": {"act": act}}
        silo["spec"]["datasets"][0].update(own)
    del documents[-1]["spec"]["evaluation"], documents[-1]["spec"]["aggregator"]
    documents[-1]["spec"]["participation"] = {"minSilos": 1}
    path.write_text(yaml.safe_dump_all(documents))
    with pytest.raises(
        SiloFailed, match=f"^{said}item 7: loader: python:{module}:volumes: read raised EOF"
    ) as caught:
        simulate(load(path), tmp_path, tmp_path / "run")
    assert caught.value.reason == "DataInvalid"


def test_report_changes_nothing_of_the_model_and_shows_the_table(tmp_path: Path) -> None:
    write_datasets(tmp_path)
    features = np.random.default_rng(1).normal(size=(30, 3)) * [1, 1e5, 1]
    features[20:] = features[10]
    write(tmp_path, "west", features=features)
    plain = simulate(load(manifest(tmp_path)), tmp_path, tmp_path / "plain").result
    federation, said = load(manifest(tmp_path, check="report")), io.StringIO()
    workdir = RunDirectory(tmp_path / "run")
    outcome = run_in_process(federation, workdir, tmp_path, display_for(said), SEQUENTIAL_PLAN)
    document = outcome.document
    assert plain is not None
    assert document["model"]["sha256"] == plain.sha256
    codes = [(one["silo"], one["code"]) for one in document["findings"]]
    expected = ["FeatureUnscaled", "Duplicates", "ValidationLeaks"]
    assert codes == [("default/west", code) for code in expected]
    assert (
        "data of default/west: warning: Duplicates: examples: 10 copies of others; remove" in said.getvalue()
    )
    status = json.loads((workdir.aggregator / "status.json").read_text())
    assert status["findings"] == document["findings"]
