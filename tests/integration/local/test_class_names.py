"""Four hospitals with image folders, of which one has `plane` where the others have `airplane`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.integration.local.manifest import silo, write
from tests.integration.local.runs import run, running_processes

pytestmark = pytest.mark.thorough

CLASSES = ("airplane", "bird", "cat", "dog")
SILOS = ("north", "south", "east", "west")


def folders(root: Path, name: str, classes: tuple[str, ...]) -> None:
    for shade, folder in enumerate(classes):
        (root / name / folder).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((8, 8), 60 * shade + number, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / folder / f"{number}.png")


def test_a_folder_of_another_name_ends_the_job_before_anybody_trains(tmp_path: Path) -> None:
    for name in SILOS:
        folders(tmp_path, name, ("plane", *CLASSES[1:]) if name == "east" else CLASSES)
    members = [silo(name, {"loader": "imagefolder", "config": {"path": name}}) for name in SILOS]
    spec = {"training": {"rounds": 1}, "evaluation": {"testDataset": None}, "aggregator": {"datasets": []}}
    manifest = write(tmp_path / "scans.yaml", members, data={"classes": 4}, **spec)
    ended = run(manifest, tmp_path / "run")
    document = ended.document
    assert (ended.code, document["phase"], document["reason"]) == (4, "Failed", "DataInvalid"), ended.err
    assert document["message"] == (
        "the data are not named alike: silo silo-east/east: class 'plane' is in these data alone; did you mean "
        "'airplane'? rename it, or set classAliases {plane: airplane} in the dataset"
    )
    assert (document["rounds"], ended.history) == (0, [])
    assert not list((tmp_path / "run").rglob("*.update"))
    assert "Traceback" not in ended.err

    (tmp_path / "east" / "plane").rename(tmp_path / "east" / "airplane")
    ended = run(manifest, tmp_path / "run", "--resume")
    assert (ended.code, ended.document["phase"]) == (0, "Succeeded"), ended.err
    assert len(ended.history[0]["samples"]) == 4
    assert running_processes(tmp_path) == {}
