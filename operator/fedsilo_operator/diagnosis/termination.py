"""How one pod ended: the message of its process, or of what ended it.

These texts travel from the silo to the consortium, past the guard and its audit log. A trainer sees the data and
runs the job's code, so nothing of it is passed on but its exit code and one of a few known reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo import errors
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo_operator.diagnosis.pods import PodCondition
from fedsilo_operator.limit_range import injected_limit_text, injected_memory_limit
from fedsilo_operator.objects import COMPONENT, JOB_NAME, JOB_NAMESPACE, SILO, labels_of, ref_of
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

MAX_PROCESS_MESSAGE_CHARACTERS = 1024
"""Characters of a process's message that are passed on."""

_UNFORESEEN_REASON = errors.FedsiloError.reason

_KNOWN_REASONS = {
    error.reason
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, errors.FedsiloError)
} | {"AuditBroken"}
"""Reasons with which our processes end; docs/errors.md lists them all."""

LIMIT_FIELDS = {
    "aggregator": "a limit of its own in spec.aggregator.resources of a new job",
    "trainer": "a limit of its own in spec.agent.resources of the Silo",
    "guard": "no limit of memory for this namespace's guards, which have none of their own",
}
"""Component -> where a limit of memory is written that takes the place of a LimitRange's."""

_NEVER_RAN = ("StartError", "ContainerCannotRun")
"""Reasons of a container whose process was never started: its message is the node's."""

_EXIT_CODE = re.compile(r"failed with exit code (\d+) matching FailJob rule")
"""The Job controller's message about a pod failure policy; the pod itself may be gone."""

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
class Termination:
    """Why a pod failed.

    :param reason: empty where nothing is known but the exit code.
    :param message: what follows "The trainer".
    :param disruption: set where it was no fault of the program, so that it does not count.
    """

    reason: str
    message: str
    disruption: Reason | None = None


def termination_of(pod: Object, more_memory: str) -> Termination | None:
    """Why the pod failed or is about to; None when there is no sign of that.

    :param more_memory: what to do where it had too little memory, a sentence.
    """
    status = status_of(pod)
    if holds(pod, PodCondition.DISRUPTION_TARGET):
        return _disruption(condition(pod, PodCondition.DISRUPTION_TARGET) or {}, status)
    if status.get("reason"):
        return Termination(Reason.EVICTED, f"was ended by its node ({_detail(status)}).", Reason.EVICTED)
    component = labels_of(pod)[COMPONENT]
    check = _terminated_state(status, "initContainerStatuses")
    if check is not None and check["exitCode"] != 0:
        # Of the guard's image, like the guard.
        failure = _exit(
            check, "guard", f"kubectl logs {ref_of(pod).name} -n {ref_of(pod).namespace} -c isolation"
        )
        return Termination(failure.reason, f"did not begin, since the look at its network {failure.message}")
    terminated = _terminated_state(status, "containerStatuses")
    if terminated is None:
        return None
    if terminated.get("reason") == "OOMKilled":
        if (limit := injected_memory_limit(pod)) is not None:
            more_memory = injected_limit_text(limit, ref_of(pod), LIMIT_FIELDS[component])
        return Termination(
            Reason.OUT_OF_MEMORY, f"used more memory than it may and was killed. {more_memory}"
        )
    return _exit(terminated, component, _log_of(pod))


def reason_in(message: str) -> str:
    """Reason that the exit code in a Job controller's sentence stands for; empty where it has none."""
    found = _EXIT_CODE.search(message)
    return CODES.get(int(found[1]), "") if found else ""


def _terminated_state(status: Mapping[str, Any], containers: str) -> Mapping[str, Any] | None:
    """How the only container in this list ended, if it has."""
    statuses = status.get(containers) or [{}]
    found: Mapping[str, Any] | None = (statuses[0].get("state") or {}).get("terminated")
    return found


def _exit(terminated: Mapping[str, Any], component: str, log: str) -> Termination:
    """How a process ended.

    :param log: the command that shows its log.
    """
    code, text = terminated.get("exitCode", 0), str(terminated.get("message") or "")
    if terminated.get("reason") in _NEVER_RAN:
        return Termination("", f"ended with exit code {code}: {_line(text)}")
    left, message = _read_message(text)
    reason = left if left in _KNOWN_REASONS else CODES.get(code, "")
    end = f"ended with exit code {code} ({reason})" if reason else f"ended with exit code {code}"
    if message and _may_be_disclosed(component, left):
        return Termination(reason, f"{end}: {_line(message)}")
    return Termination(reason, f"{end}; its log says more: {log}.")


def _may_be_disclosed(component: str, left: str) -> bool:
    """Whether a process's message may be disclosed to the consortium.

    The aggregator is the consortium's own. A guard's errors are written without the data, except for an unforeseen one,
    which may quote what a trainer has handed to it.
    """
    return component == "aggregator" or (
        component == "guard" and left in _KNOWN_REASONS and left != _UNFORESEEN_REASON
    )


def _read_message(text: str) -> tuple[str, str]:
    """Reason and message that a process left in its termination log; anything else there has no reason."""
    try:
        document = json.loads(text)
        return str(document["reason"]), str(document["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", text


def _line(text: str) -> str:
    line = " ".join(text.split())[:MAX_PROCESS_MESSAGE_CHARACTERS]
    return line if line.endswith(".") else f"{line}."


def _log_of(pod: Object) -> str:
    """The command that shows the log to those who may read it."""
    labels = labels_of(pod)
    silo = f" --silo {labels[SILO]}" if SILO in labels else ""
    return (
        f"kubectl fedsilo logs {labels[JOB_NAME]} -n {labels[JOB_NAMESPACE]}{silo}"
        f" --component {labels[COMPONENT]}"
    )


def _disruption(found: Mapping[str, Any], status: Mapping[str, Any]) -> Termination:
    reason, end = _DISRUPTIONS.get(str(found.get("reason")), (Reason.EVICTED, "was disrupted"))
    detail = _detail(status if status.get("message") else found)
    return Termination(reason, f"{end} ({detail}).", reason)


def _detail(found: Mapping[str, Any]) -> str:
    """The node's message, without how much each container had used: a trainer could choose that number."""
    text = " ".join(str(found.get("message") or found.get("reason") or "no reason was given").split())
    return text.partition(" Container ")[0].rstrip(".")
