"""What can go wrong with the test cluster."""

from __future__ import annotations

from fedsilo.errors import FedsiloError


class ClusterError(FedsiloError):
    """The test cluster cannot be built, started or taken down; the message says what to do."""

    reason = "ClusterError"
