"""Putting the built images into the cluster's containerd, which needs only the layers that it has not yet."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from hack.cluster import runtime
from hack.cluster.errors import ClusterError
from hack.cluster.packages import ensure
from hack.cluster.paths import CONTAINERD_SOCKET, hold_lock, image_store, say
from hack.images.recipes import references
from hack.images.store import Store

NAME = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"
"""containerd names an imported image after this annotation, if there is one."""

CONTENT_STORE = image_store() / "io.containerd.content.v1.content" / "blobs" / "sha256"
"""Where the cluster's containerd keeps blobs."""

REPLACED_PREFIX = "localhost/replaced/"
"""Before the name of an image that a newer one is about to replace."""

Descriptor = dict[str, Any]
"""An OCI index's entry for a manifest: media type, digest, size, annotations."""


def load() -> bool:
    """Put the built images into the running cluster; false if none runs.

    :raises ClusterError: when an image was not built, or containerd refuses it.
    """
    if not runtime.answers():
        return False
    ensure("skopeo")
    store = Store()
    began = time.monotonic()
    with hold_lock(store.root / "lock", "builds images"):
        wanted, present = export(store), loaded_digests()
        missing = {name: image for name, image in wanted.items() if present.get(name) != image["digest"]}
        if missing:
            _replace(store.layout, missing, present)
        _share(store.layout)
        if stale := superseded_names(loaded_digests().items(), wanted):
            runtime.ctr("images", "rm", *stale)
    names = ", ".join(name.rpartition("/")[2] for name in missing) or "nothing new"
    say(f"loaded {names} in {time.monotonic() - began:.0f} s")
    return True


def export(store: Store) -> dict[str, Descriptor]:
    """Bring the layout up to date with the store, drop from it what is no longer wanted, and list it by name."""
    index = store.layout / "index.json"
    if not _readable(index):
        shutil.rmtree(store.layout, ignore_errors=True)
    for name in references():
        store.export(name)
    listed = {entry.get("annotations", {}).get(NAME): entry for entry in _json(index)["manifests"]}
    wanted = {name: listed[name] for name in references()}
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": list(wanted.values())}))
    kept = {digest for manifest in wanted.values() for digest in blobs_of(store.layout, manifest)}
    for file in (store.layout / "blobs" / "sha256").iterdir():
        if f"sha256:{file.name}" not in kept:
            file.unlink()
    return wanted


def blobs_of(layout: Path, manifest: Descriptor) -> list[str]:
    """Digests of an image: its manifest, configuration and layers."""
    content = _json(_blob(layout, manifest["digest"]))
    return [
        manifest["digest"],
        content["config"]["digest"],
        *(layer["digest"] for layer in content["layers"]),
    ]


def write_archive(
    target: IO[bytes], layout: Path, images: Mapping[str, Descriptor], present: set[str]
) -> None:
    """Write images as an OCI archive without the blobs that the receiver has.

    :param present: digests of those.
    """
    index = [{**manifest, "annotations": {CONTAINERD_NAME: name}} for name, manifest in images.items()]
    with tarfile.open(fileobj=target, mode="w|", bufsize=1 << 20) as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())
        digests = dict.fromkeys(digest for image in images.values() for digest in blobs_of(layout, image))
        for digest in digests:
            if digest not in present:
                archive.add(_blob(layout, digest), f"blobs/sha256/{digest.removeprefix('sha256:')}")


def superseded_names(images: Iterable[tuple[str, str]], wanted: Collection[str]) -> list[str]:
    """Names in containerd that nothing needs once the wanted images are there.

    These are other versions of the wanted images, the names that held the replaced ones during an import, and what
    the kubelet's half of containerd leaves: a name made of a digest alone for images that have lost their proper one.

    :param images: pairs of name and digest.
    """
    listed = list(images)
    ours = {_repository(name) for name in wanted}
    stale = {
        name
        for name, _ in listed
        if name.startswith(REPLACED_PREFIX) or (_repository(name) in ours and name not in wanted)
    }
    named = {digest for name, digest in listed if not name.startswith("sha256:") and name not in stale}
    stale |= {name for name, digest in listed if name.startswith("sha256:") and digest not in named}
    return sorted(stale)


def _repository(name: str) -> str:
    return name.rpartition(":")[0]


def _replace(layout: Path, images: Mapping[str, Descriptor], present: Mapping[str, str]) -> None:
    """Import images into containerd; an image that one of them replaces keeps a name meanwhile.

    Without a name containerd would collect its layers and unpacked files, which the new images share, before it has
    unpacked the new ones.
    """
    for name in images.keys() & present.keys():
        runtime.ctr("images", "tag", "--force", name, REPLACED_PREFIX + name.removeprefix("localhost/"))
    blobs = set(runtime.ctr("content", "ls", "--quiet").split())
    try:
        _send(layout, images, blobs)
    except ClusterError:
        # A blob may have been collected meanwhile that was there when they were listed.
        _send(layout, images, set())


def _share(layout: Path) -> None:
    """Let containerd's files be those of the layout, which has the same under the same digests: half the space.

    A file that containerd has open stays what it was.
    """
    for blob in (layout / "blobs" / "sha256").iterdir():
        twin = CONTENT_STORE / blob.name
        if twin.exists() and twin.stat().st_dev == blob.stat().st_dev and not twin.samefile(blob):
            link = twin.with_name(f"{twin.name}.link")
            link.unlink(missing_ok=True)
            link.hardlink_to(blob)
            link.replace(twin)


def _send(layout: Path, images: Mapping[str, Descriptor], present: set[str]) -> None:
    where = ["--address", str(CONTAINERD_SOCKET), "--namespace", runtime.NAMESPACE]
    command = ["ctr", *where, "images", "import", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        try:
            write_archive(process.stdin, layout, images, present)
            process.stdin.close()
        except BrokenPipeError:
            pass
        output = process.stdout.read().decode() if process.stdout else ""
    if process.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {output.strip()[-500:]}")


def loaded_digests() -> dict[str, str]:
    """Digests of the images in the cluster, by name."""
    rows = [line.split() for line in runtime.ctr("images", "ls").splitlines()[1:]]
    return {row[0]: row[2] for row in rows}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _readable(index: Path) -> bool:
    try:
        _json(index)
    except (OSError, ValueError):
        return False
    return True
