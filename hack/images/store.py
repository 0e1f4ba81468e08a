"""buildah's store of images, in the cache, separate from the user's own.

Programs that mount things run in namespaces that end with this process, however it ends: when it is killed, so are
they, with all their mounts and containers, and the next run finds nothing but files to remove.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from hack.cluster.errors import ClusterError
from hack.cluster.paths import cache

_ISOLATION_COMMAND = [
    "setpriv",
    "--pdeathsig=KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=KILL",
]
_ISOLATION_COMMAND += ["--mount-proc"]
_STEP = re.compile(r"^--> (?:Using cache )?([0-9a-f]{11,64})$")
_SHORT_ID_DIGITS = 11
"""Digits by which buildah's output names a step's image; its listing has one more."""


@dataclass(slots=True)
class Store:
    """The store under the cache, and which of its layers this process used."""

    root: Path = field(default_factory=lambda: cache() / "images")
    used: set[str] = field(default_factory=set)

    @property
    def scratch(self) -> Path:
        """Directory for temporary files of the image store, emptied when the store is opened."""
        return self.root / "scratch"

    @property
    def layout(self) -> Path:
        """Directory of the store's images as an OCI image layout, whose layers are named by what they hold."""
        return self.root / "layout"

    def open(self) -> None:
        """Make the store, or repair it after an interrupted run."""
        if self.scratch.exists():
            shutil.rmtree(self.scratch)
        self.scratch.mkdir(parents=True)
        for started in self.layout.glob("oci-put-blob*"):
            started.unlink()
        self._ask("rm", "--all")

    def has(self, name: str) -> bool:
        """Whether an image of that name is there."""
        return any(name in (image["names"] or ()) for image in self._images())

    def config(self, name: str) -> dict[str, Any]:
        """An image's configuration, as OCI names its fields: Entrypoint, User, Labels ..."""
        found: dict[str, Any] = json.loads(self._ask("inspect", "--type", "image", name))["OCIv1"]["config"]
        return found

    def untag(self, name: str) -> None:
        """Take a name from an image; the image goes where it has no other."""
        self._ask("rmi", name)

    def bud(self, *arguments: str) -> None:
        """Build from a Dockerfile, with what earlier builds left of the same steps.

        :raises ClusterError: when a step fails; its output was shown.
        """

        def note(line: str) -> None:
            print(f"  {line}", flush=True)
            if step := _STEP.match(line):
                self.used.add(step[1][:_SHORT_ID_DIGITS])

        self.run(self.build_command(*arguments), note)

    def build_command(self, *arguments: str) -> list[str]:
        """The command line of a build."""
        return self._buildah("bud", "--layers", "--pull-never", "--isolation", "chroot", *arguments)

    def tag(self, name: str, other: str) -> None:
        """Give an image a second name."""
        self._ask("tag", name, other)

    def prune(self, names: Collection[str]) -> int:
        """Remove all images but those names and the steps of this process's builds; how many there were."""
        stale = [
            image["id"]
            for image in self._images()
            if not set(image["names"] or ()) & set(names) and image["id"][:_SHORT_ID_DIGITS] not in self.used
        ]
        if stale:
            self._ask("rmi", "--force", *stale)
        return len(stale)

    def export(self, name: str) -> None:
        """Copy an image into the layout; layers that are there are not read again."""
        source = f"containers-storage:[overlay@{self.root / 'store'}+{self.root / 'run'}]{name}"
        copy = ["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers"]
        self.run([*copy, source, f"oci:{self.layout}:{name}"])

    def run(self, command: Sequence[str], show: Callable[[str], None] | None = None) -> str:
        """Run a program in namespaces of its own; what it prints.

        :param show: called with every line as it comes, those of standard error too.
        :raises ClusterError: when it fails.
        """
        with subprocess.Popen(
            [*_ISOLATION_COMMAND, *command],
            env={**os.environ, "TMPDIR": str(self.scratch), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if show else subprocess.PIPE,
            text=True,
        ) as process:
            if show:
                output, errors = _follow_output(process, show), ""
            else:
                output, errors = process.communicate()
        if process.returncode != 0:
            tail = "\n".join((errors or output).splitlines()[-10:])
            raise ClusterError(
                f"{' '.join(command[:2])} failed with exit code {process.returncode}; its last lines:\n{tail}"
            )
        return output

    def _images(self) -> list[_ImageEntry]:
        found: list[_ImageEntry] = json.loads(self._ask("images", "--all", "--json"))
        return found

    def _ask(self, *arguments: str) -> str:
        return self.run(self._buildah(*arguments))

    def _buildah(self, *arguments: str) -> list[str]:
        where = ["--root", str(self.root / "store"), "--runroot", str(self.root / "run")]
        return ["buildah", *where, "--storage-driver", "overlay", *arguments]


class _ImageEntry(TypedDict):
    id: str
    names: list[str] | None


def _follow_output(process: subprocess.Popen[str], show: Callable[[str], None]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        show(line.rstrip())
        lines.append(line)
    return "".join(lines)
