"""What the images' names, Dockerfiles and archives say, without building any."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from hack.images.loading import CONTAINERD_NAME, REPLACED_PREFIX, superseded_names, write_archive
from hack.images.recipes import IMAGES, Image, reference
from tests.paths import ROOT

OPERATOR = "localhost/fedsilo-operator:0.1.0"


def stages(dockerfile: str) -> dict[str, str]:
    """A Dockerfile's stages by name, each as its text."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / dockerfile).read_text())
    return {
        re.split(r"\s+", part, maxsplit=4)[3]: part.strip()
        for part in re.split(r"(?m)^(?=FROM )", text)
        if part.startswith("FROM ")
    }


@pytest.mark.parametrize(
    "stage", ["tools", "code", "requirements", "learning", "extras-requirements", "extras"]
)
def test_a_shared_stage_is_the_same_wherever_it_stands(stage: str) -> None:
    texts = [found[stage] for image in IMAGES if stage in (found := stages(image.dockerfile))]
    assert len(texts) > 1
    assert len(set(texts)) == 1


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_runs_its_program_as_a_numbered_user(image: Image) -> None:
    stage = stages(image.dockerfile)[image.name]
    assert "\nUSER 65532:65532\n" in stage
    assert f'\nENTRYPOINT ["fedsilo-{image.name}"]\n' in stage
    assert f'org.opencontainers.image.title="fedsilo-{image.name}"' in stage


def test_a_name_has_the_version_and_no_registry() -> None:
    assert re.fullmatch(r"localhost/fedsilo-trainer:\d+\.\d+\.\d+", reference("trainer"))


def test_replaced_and_older_images_are_superseded() -> None:
    listed = [
        (OPERATOR, "sha256:new"),
        ("sha256:aa", "sha256:new"),
        ("sha256:bb", "sha256:old"),
        (REPLACED_PREFIX + "fedsilo-operator:0.1.0", "sha256:old"),
        ("localhost/fedsilo-operator:0.0.9", "sha256:older"),
        ("localhost/fedsilo-cluster-pause:1", "sha256:pause"),
        ("sha256:cc", "sha256:pause"),
    ]
    assert superseded_names(listed, [OPERATOR]) == [
        "localhost/fedsilo-operator:0.0.9",
        REPLACED_PREFIX + "fedsilo-operator:0.1.0",
        "sha256:bb",
    ]


def test_an_archive_leaves_out_what_the_receiver_has(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return f"sha256:{digest}"

    large, small, configuration = put(b"large" * 1000), put(b"small"), put(b"{}")
    layers = [{"digest": large}, {"digest": small}]
    manifest = put(json.dumps({"config": {"digest": configuration}, "layers": layers}).encode())

    archive = io.BytesIO()
    write_archive(archive, tmp_path, {OPERATOR: {"digest": manifest}}, {large})

    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        written = {entry.name for entry in tar}
        index = json.load(tar.extractfile("index.json") or io.BytesIO())
    assert written == {
        "oci-layout",
        "index.json",
        *(f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in (small, configuration, manifest)),
    }
    assert index["manifests"] == [{"digest": manifest, "annotations": {CONTAINERD_NAME: OPERATOR}}]
