"""Building the images with buildah."""

from __future__ import annotations

import time
from pathlib import Path

from hack.cluster.packages import ensure
from hack.cluster.paths import hold_lock, say
from hack.images import recipes
from hack.images.recipes import BASE, IMAGES, TOOLBOX, reference
from hack.images.store import Store
from hack.paths import ROOT

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"

HOST_FILES = ("/etc/ssl/certs", "/etc/pip.conf", "/etc/uv/uv.toml")
"""This machine's settings for package registries: visible to the steps of a build, never part of an image."""

_BASE_DOCKERFILE = """\
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""


def build() -> None:
    """Build every image, as far as something changed.

    :raises ClusterError: when a step fails.
    """
    ensure("buildah", "debootstrap", "skopeo")
    store = Store()
    with hold_lock(store.root / "lock", "builds images"):
        store.open()
        if not store.has(BASE):
            _build_base(store)
        store.tag(BASE, TOOLBOX)
        for image in IMAGES:
            _build(store, image)
        if removed := store.prune([BASE, *recipes.references()]):
            say(f"removed {removed} steps of earlier builds")


def _build(store: Store, image: recipes.Image) -> None:
    began = time.monotonic()
    name = reference(image.name)
    say(f"building {name}")
    store.bud(
        *local_arguments(),
        f"--build-arg=VERSION={recipes.version()}",
        f"--file={ROOT / image.dockerfile}",
        f"--target={image.name}",
        f"--tag={name}",
        str(ROOT),
    )
    say(f"{name} took {time.monotonic() - began:.0f} s")


def local_arguments() -> list[str]:
    """Arguments of a build that are this machine's: its way to package registries, and a base without a registry."""
    mounts = [f"--volume={file}:{file}:ro" for file in HOST_FILES if Path(file).exists()]
    return [*mounts, "--network=host", f"--build-arg=BASE={BASE}"]


def _build_base(store: Store) -> None:
    began = time.monotonic()
    say(f"building {BASE} from Debian packages, about a minute")
    system = store.scratch / "system"
    store.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(system)])
    context = store.scratch / "base"
    context.mkdir()
    # An archive keeps owners and modes, which a copied directory would not.
    without = [
        f"--exclude=./{path}/*" for path in ("var/cache/apt", "var/lib/apt/lists", "dev", "proc", "sys")
    ]
    store.run(["tar", "--create", f"--file={context / 'base.tar'}", f"--directory={system}", *without, "."])
    (context / "Dockerfile").write_text(_BASE_DOCKERFILE)
    store.bud(f"--tag={BASE}", str(context))
    say(f"{BASE} took {time.monotonic() - began:.0f} s")
