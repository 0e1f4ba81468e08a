"""Whether this system permits what trainers rely on, found out without fedsilo, whose word is what is tested."""

from __future__ import annotations

import os
import subprocess


def isolation_permitted(user: int | None = None) -> bool:
    """Whether a process gets a network and mounts of its own.

    :param user: whose process, where that is not the one of the tests.
    """
    user = os.geteuid() if user is None else user
    command = [
        "unshare",
        *([] if user == 0 else ["--user", "--map-current-user"]),
        "--net",
        "--mount",
        "true",
    ]
    other = {} if user == os.geteuid() else {"user": user, "group": user, "extra_groups": []}
    try:
        return subprocess.run(command, capture_output=True, **other).returncode == 0  # type: ignore[call-overload,no-any-return]
    except OSError:
        return False
