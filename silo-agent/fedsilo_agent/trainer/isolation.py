"""Taking the network, and the guard's files, away from this very process before any job code runs.

On a cluster the pod's network policy and mounts do this. On one machine the trainer moves itself into an empty
network namespace and covers the guard's directory, where the system permits; where it does not, the trainer reports
that.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ISOLATED_MESSAGE = "no network, guard's directory hidden"
"""What `isolate` says when it has done all that it should."""

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, LAST_CAP = 1, 2, 40
CAPABILITY_VERSION = 0x20080522
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


@dataclass(frozen=True)
class TrainerDirectory:
    """The directory of an institution's silo, as one of its trainers sees it: read-only, but for its own volume.

    :param root: the directory, with the institution's policy and perhaps its data.
    :param volumes: directory in it with the volumes of all jobs, of which the trainer sees its own.
    :param volume: its own.
    """

    root: Path
    volumes: Path
    volume: Path


def isolate(hidden: Sequence[Path], fixed: Path, home: TrainerDirectory | None = None) -> str:
    """Enter empty namespaces and give up the rights to leave them; returns a description of what was achieved.

    Must run before the process has a second thread: a user namespace cannot be entered otherwise.

    :param hidden: directories to cover with empty read-only file systems: the guard's, and whatever else job code on
    this machine must not see.
    :param fixed: directory that stays visible and becomes read-only: the guard's tasks.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        _unshare(libc)
    except (OSError, AttributeError) as error:
        return f"not isolated: this system permits no network namespace ({error})"
    try:
        # Without this, the mounts below would appear outside too.
        _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")
        if home is not None:
            _stay_in(libc, home)
        _cover(libc, hidden, fixed)
        _enable_loopback()
        _drop_capabilities(libc)
    except (OSError, AttributeError) as error:
        return f"no network; the guard's directory is not hidden ({error})"
    return ISOLATED_MESSAGE


def _unshare(libc: ctypes.CDLL) -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _check(libc.unshare(CLONE_NEWNET | CLONE_NEWNS), "unshare")
        return
    _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _enable_loopback() -> None:
    """Switch the namespace's own loopback interface on, by which the processes of one training reach each other.

    Nothing else is there to be reached. Where the system does not permit it, they say that they cannot.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack_from("16xh", fcntl.ioctl(control, SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _stay_in(libc: ctypes.CDLL, home: TrainerDirectory) -> None:
    own = os.open(home.volume, os.O_PATH | os.O_DIRECTORY)
    try:
        _fix(libc, home.root)
        name = os.fsencode(home.volumes)
        _check(libc.mount(b"none", name, b"tmpfs", 0, b"size=4k"), f"mount over {home.volumes}")
        home.volume.mkdir(parents=True)
        source, target = f"/proc/self/fd/{own}".encode(), os.fsencode(home.volume)
        _check(libc.mount(source, target, None, MS_BIND, None), f"mount {home.volume}")
        _check(libc.mount(None, name, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None), f"mount {home.volumes}")
    finally:
        os.close(own)
    # What was the current directory lies under the mounts, where nothing is covered.
    os.chdir(Path.cwd())


def _cover(libc: ctypes.CDLL, hidden: Sequence[Path], fixed: Path) -> None:
    for path in hidden:
        _check(libc.mount(b"none", os.fsencode(path), b"tmpfs", MS_RDONLY, b"size=4k"), f"mount over {path}")
    _fix(libc, fixed)


def _fix(libc: ctypes.CDLL, path: Path) -> None:
    """Make a directory read-only, with what else it was mounted with: a user namespace may not take that back."""
    name, kept = os.fsencode(path), os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    _check(libc.mount(name, name, None, MS_BIND | MS_REC, None), f"mount {path}")
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | kept
    _check(libc.mount(None, name, None, flags, None), f"mount {path} read-only")


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Without these rights nothing that was mounted can be taken off, and no other process inspected.

    Root keeps the right to read and write files of others, which its data may be.
    """
    keep = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH} if os.geteuid() == 0 else set()
    for capability in range(LAST_CAP + 1):
        if capability not in keep:
            _check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl PR_CAPBSET_DROP")
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl PR_SET_NO_NEW_PRIVS")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    mask = sum(1 << capability for capability in keep)
    # Effective, permitted and inheritable capabilities, two 32-bit words of each, capset(2).
    _check(libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)), "capset")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
