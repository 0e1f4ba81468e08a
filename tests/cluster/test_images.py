"""The project's images, as a restricted namespace runs them."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import hold_lock
from hack.cluster.runtime import ctr
from hack.images import TOOLBOX, reference
from hack.images.building import local_arguments
from hack.images.store import Store
from tests.cluster.namespace import Namespace, fresh_namespace, pod
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

ROLES = ("operator", "aggregator", "guard", "trainer")
TORCHLESS_IMAGES = ("operator", "guard")


@pytest.fixture(scope="module")
def started_pods(kubectl: Kubectl) -> Iterator[Namespace]:
    """Pods of all images, started together: each prints its version, `look-*` what it could import."""
    with fresh_namespace(kubectl) as namespace:
        versions = [pod(role, reference(role), ()) for role in ROLES]
        for running in versions:
            del running["spec"]["containers"][0]["command"]
            running["spec"]["containers"][0]["args"] = ["--version"]
        script = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('sklearn'))"
        looks = [pod(f"look-{role}", reference(role), ("python3", "-c", script)) for role in TORCHLESS_IMAGES]
        namespace.apply(*versions, *looks)
        yield namespace


@pytest.mark.parametrize("role", ROLES)
def test_an_image_starts_under_restricted_and_prints_its_version(started_pods: Namespace, role: str) -> None:
    started_pods.wait("pod", role, "jsonpath={.status.phase}=Succeeded")
    assert started_pods.logs(role) == f"fedsilo {version('fedsilo')}\n"


@pytest.mark.parametrize("role", TORCHLESS_IMAGES)
def test_an_image_that_computes_nothing_has_no_torch(started_pods: Namespace, role: str) -> None:
    started_pods.wait("pod", f"look-{role}", "jsonpath={.status.phase}=Succeeded")
    assert started_pods.logs(f"look-{role}") == "None None\n"


def test_the_operators_layers_are_small() -> None:
    """Sizes of layers are those of containerd, uncompressed; the toolbox is the base alone."""
    base, operator = layers(TOOLBOX), layers(reference("operator"))
    assert base.keys() < operator.keys()
    assert 0 < sum(size for digest, size in operator.items() if digest not in base) <= 190e6


@runs("docs/images.md")
def test_the_builds_of_the_page_give_images_of_the_version(terminal: Terminal) -> None:
    """By buildah, whatever the page calls: there is no other builder here, and no registry with a base."""
    store = Store()
    builder = terminal.folder / "builder"
    builder.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(store.build_command(*local_arguments()))} "$@"\n')
    builder.chmod(0o755)
    terminal.environment["TMPDIR"] = str(store.scratch)
    in_root = dataclasses.replace(terminal, folder=ROOT)  # a build follows no link out of its context
    with hold_lock(store.root / "lock", "builds images"):
        for command in terminal.commands:
            (tag,) = re.findall("-t (\\S+)", command)
            in_root.type(command, {command.split()[0]: str(builder)})
            config = store.config(tag)
            store.untag(tag)
            role = tag.rpartition("/")[2].partition(":")[0]
            assert config["Entrypoint"] == [role]
            assert config["Labels"]["org.opencontainers.image.version"] == version("fedsilo")


def layers(name: str) -> dict[str, int]:
    """Bytes of each layer of an image, by digest."""
    rows = [line.split() for line in ctr("images", "ls", f"name=={name}").splitlines()[1:]]
    (digest,) = (row[2] for row in rows)
    manifest = json.loads(ctr("content", "get", digest))
    assert all(layer["mediaType"].endswith(".tar") for layer in manifest["layers"]), "compressed"
    return {layer["digest"]: layer["size"] for layer in manifest["layers"]}
