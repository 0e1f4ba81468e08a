"""How one pod ended: its process's own words, or those of what ended it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo_operator.objects import Object, condition, holds
from fedsilo_operator.reasons import Reason

CODES = {
    2: Reason.MANIFEST_INVALID,
    3: Reason.DATA_INVALID,
    5: Reason.POLICY_REFUSED,
    6: Reason.WORKDIR_CONFLICT,
    7: Reason.METHOD_ERROR,
    8: Reason.PROTOCOL_PROBLEM,
}
"""Reason of a process that left none, by its exit code; see `fedsilo.errors`."""

LONGEST = 4096
"""Bytes of a termination message, as the kubelet keeps them."""

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""What meta/v1 takes as the reason of a condition; a trainer's own word is not trusted to be one."""

_EXIT_CODE = re.compile(r"failed with exit code (\d+) matching FailJob rule")
"""What the Job controller says of a pod failure policy; the pod itself may be gone."""

_DISRUPTIONS = {
    "PreemptionByScheduler": (Reason.EVICTED, "made room for a pod of higher priority"),
    "DeletionByTaintManager": (
        Reason.NODE_LOST,
        "was removed from a node that was tainted or does not answer",
    ),
    "EvictionByEvictionAPI": (Reason.EVICTED, "was evicted, as when a node is drained"),
    "DeletionByPodGC": (Reason.NODE_LOST, "was on a node that is gone"),
    "TerminationByKubelet": (Reason.EVICTED, "was evicted by its node"),
}


@dataclass(frozen=True)
class Failure:
    """Why a pod failed.

    :param reason: empty where nothing is known but the exit code.
    :param message: what follows "The trainer".
    :param disruption: set where it was no fault of the program, so that it does not count.
    """

    reason: str
    message: str
    disruption: Reason | None = None


def failure_of(pod: Object, more_memory: str) -> Failure | None:
    """Why the pod failed or is about to; None when nothing says so.

    :param more_memory: what to do where it had too little memory, a sentence.
    """
    status = pod.get("status") or {}
    if holds(pod, "DisruptionTarget"):
        return _disruption(condition(pod, "DisruptionTarget") or {}, status)
    statuses = status.get("containerStatuses") or [{}]
    terminated = (statuses[0].get("state") or {}).get("terminated")
    if terminated is None:
        if not status.get("reason"):
            return None
        return Failure(Reason.EVICTED, f"was ended by its node ({_words(status)}).", Reason.EVICTED)
    if terminated.get("reason") == "OOMKilled":
        return Failure(Reason.OUT_OF_MEMORY, f"used more memory than it may and was killed. {more_memory}")
    return _exit(terminated)


def reason_in(message: str) -> str:
    """Reason that the exit code in a Job controller's sentence stands for; empty where it has none."""
    found = _EXIT_CODE.search(message)
    return CODES.get(int(found[1]), "") if found else ""


def _exit(terminated: Mapping[str, Any]) -> Failure:
    code = terminated.get("exitCode", 0)
    reason, message = _left(str(terminated.get("message") or "")[:LONGEST])
    reason = reason or CODES.get(code, "")
    end = f"ended with exit code {code} ({reason})" if reason else f"ended with exit code {code}"
    return Failure(reason, f"{end}: {message}" if message else f"{end}. Its log says more.")


def _left(text: str) -> tuple[str, str]:
    """Reason and message that a process left in its termination log; a runtime's own words have no reason."""
    try:
        document = json.loads(text)
        reason, message = str(document["reason"]), str(document["message"])
    except (ValueError, KeyError, TypeError):
        reason, message = "", text
    line = " ".join(message.split())
    return reason if _REASON.fullmatch(reason) else "", line if not line or line.endswith(".") else f"{line}."


def _disruption(found: Mapping[str, Any], status: Mapping[str, Any]) -> Failure:
    reason, words = _DISRUPTIONS.get(str(found.get("reason")), (Reason.EVICTED, "was disrupted"))
    detail = _words(status if status.get("message") else found)
    return Failure(reason, f"{words} ({detail}).", reason)


def _words(said: Mapping[str, Any]) -> str:
    text = " ".join(str(said.get("message") or said.get("reason") or "no reason was given").split())
    return text.rstrip(".")
