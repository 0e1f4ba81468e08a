"""What a job waits for, since when, until when, and what a person can do: one paragraph, and a pure function.

The operator's own messages name the remedy, so they are passed on; what is added here is the time, the silo, and the
command to type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import UNREADABLE_REASON, UNVERIFIED_REASON, ConditionType
from fedsilo.api.figures import main_first, main_name
from fedsilo.api.lost_silos import lost_silos_text
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.text import join_names, severities, shortened_list
from fedsilo.cli.cluster.round_text import in_round
from fedsilo.cli.cluster.silos import MAX_NAMES, SiloView, remote_decision_text, silo_views
from fedsilo.cli.cluster.text import plain_line, sentence
from fedsilo.cli.cluster.time_format import age, moment_text, since_text
from fedsilo.explanation.explain import (
    Cause,
    Explanation,
    WaitState,
    cause_of,
    changed_since_start,
    explain,
)

PROMPT_SECONDS = 30
"""Time in which an operator that runs has looked at a new job."""

_DOUBTS = (UNVERIFIED_REASON, UNREADABLE_REASON)
"""Reasons for which the operator itself cannot tell whether a job can run."""


@dataclass(frozen=True)
class Context:
    """Everything that the paragraph is computed from."""

    job: Object
    explanation: Explanation
    silos: Sequence[SiloView]
    now: datetime

    @property
    def subject(self) -> str:
        """How every paragraph begins."""
        return f"Job {self.explanation.subject}"

    @property
    def arguments(self) -> str:
        """The job as the arguments of a command."""
        return f"{self.job['metadata']['name']} -n {self.job['metadata']['namespace']}"

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's `status` as read from the cluster."""
        return status_of(self.job)

    @property
    def since_text(self) -> str:
        """Since when the job is in its state."""
        return since_text(self.explanation.cause.since, self.now)

    @property
    def message(self) -> str:
        """What the operator says about the state, as a sentence."""
        return _message(self.explanation.cause)

    @property
    def rounds(self) -> str:
        """How far it came, such as `7 of 50 rounds`."""
        done, all_ = self.status.get("round") or 0, self.status.get("rounds")
        return f"{done} of {all_} rounds" if all_ else f"{done} rounds"


def paragraph(job: Object, agents: Sequence[Object], now: datetime) -> str:
    """What the job waits for.

    :param agents: those SiloAgents of the job that the reader may see; for the others the job's status must do.
    :param now: with the time zone in which times are shown.
    """
    context = Context(job, explain(job), silo_views(job, agents), now)
    text = _STATES[context.explanation.state](context) + _change_text(context)
    text += _data(context) + _outputs_text(context)
    if not context.explanation.unseen_change:
        return text
    remedy = "" if _IF_IT_LASTS in text else f" {_IF_IT_LASTS}"
    return f"{text} The operator has not acted on the last change of the spec yet.{remedy}"


def _message(cause: Cause) -> str:
    return sentence(f"{cause.reason}: {cause.message}" if cause.message else cause.reason)


def _change_text(context: Context) -> str:
    """What the job shows otherwise than its silos were given it."""
    found = changed_since_start(context.job)
    return "" if found is None else f" {_message(found)}"


def _outputs_text(context: Context) -> str:
    """What the job was to leave beside its model and has not."""
    found = condition(context.job, ConditionType.OUTPUTS_DELIVERED)
    if found is None or found["status"] != "False":
        return ""
    return f" {_message(cause_of(context.job, ConditionType.OUTPUTS_DELIVERED))}"


def _data(context: Context) -> str:
    """What is wrong with the silos' data, where the job has not failed of it: its failure names all errors."""
    if context.explanation.state in (WaitState.DELETING, WaitState.FAILED):
        return ""
    findings = [one for one in context.status.get("findings") or () if one["severity"] != "note"]
    if not findings:
        return ""
    told = [f"{one['silo']}: {one['code']}: {one['place']}: {sentence(one['value'])}" for one in findings]
    quoted = " ".join(shortened_list(told, MAX_NAMES, "more."))
    return (
        f" The check of its data found {severities(findings)}. {plain_line(quoted)} "
        f"All findings and remedies: `kubectl fedsilo status {context.arguments}`."
    )


def _deleting(context: Context) -> str:
    left = [f"{silo.agent} in {silo.namespace}" for silo in context.silos if silo.agent]
    names = join_names(left, MAX_NAMES, "others") if left else ""
    waits = f"for its SiloAgents to go: {names}" if left else "for the operator to let it go"
    return (
        f"{context.subject} is being deleted {context.since_text} and waits {waits}. {_IF_IT_LASTS} "
        "Its model's volume stays."
    )


def _complete(context: Context) -> str:
    metrics = context.status.get("metrics") or {}
    scores = [
        f"{name} {metrics[name]:.4g}" for name in main_first(sorted(metrics), main_name(context.status))
    ]
    without = lost_silos_text(context.status.get("silos") or ())
    scored = ScoresStatus.of_status(context.status)
    basis = f", scored on {scored.basis}" if scored is not None and not scored.is_whole else ""
    ended = f" and {plain_line(without)}" if without is not None else ""
    text = (
        f"{context.subject} is complete {context.since_text}{ended}: {', '.join([context.rounds, *scores])}"
        f"{plain_line(basis)}."
    )
    if not (context.status.get("model") or {}).get("claim"):
        return f"{text} Its status names no model."
    return f"{text} Fetch its model with `kubectl fedsilo model {context.arguments} -o model.safetensors`."


def _failed_text(context: Context) -> str:
    begin = moment_text(context.explanation.cause.since, context.now)
    again = f"delete the job with `kubectl delete federatedjob {context.arguments}` and apply it again"
    if not context.status.get("startTime"):
        return (
            f"{context.subject} cannot run as it is written and failed {begin}. {context.message} "
            f"Correct the manifest, {again}."
        )
    done = f"after {context.rounds}" if context.status.get("round") else "before its first round was complete"
    accepted = cause_of(context.job, ConditionType.ACCEPTED)
    doubt = f" {_message(accepted)}" if accepted.reason in _DOUBTS else ""
    return (
        f"{context.subject} failed {begin} {done}. {context.message}{doubt} A failed job stays failed: "
        f"read `kubectl fedsilo logs {context.arguments}`, mend the cause, {again}."
    )


def _unobserved_text(context: Context) -> str:
    created = context.explanation.cause.since
    if age(created, context.now) <= PROMPT_SECONDS:
        return f"{context.subject} was made {moment_text(created, context.now)}; the operator is about to look at it."
    return (
        f"{context.subject} waits for the operator {context.since_text}: nothing has looked at it, so no operator "
        f"runs in this cluster or it cannot reach the API server. Look with {_OPERATOR}."
    )


def _suspending(context: Context) -> str:
    return (
        f"{context.subject} is to be suspended and waits for its pods to end. It goes on with "
        f"{_resume(context)}."
    )


def _suspended_text(context: Context) -> str:
    kept = f" Its {context.rounds} are kept." if context.status.get("round") else ""
    return (
        f"{context.subject} is suspended {context.since_text}, without a limit.{kept} "
        f"It goes on with {_resume(context)}."
    )


def _resume(context: Context) -> str:
    patch = '{"spec":{"suspend":false}}'
    return f"`kubectl patch federatedjob {context.arguments} --type merge -p '{patch}'`"


def _resuming(context: Context) -> str:
    return f"{context.subject} was suspended and waits for the operator to resume it. {_IF_IT_LASTS}"


def _not_accepted(context: Context) -> str:
    return (
        f"{context.subject} waits {context.since_text}, without a limit. {context.message} "
        "It goes on by itself once that is mended; until then no pod exists."
    )


def _admitting(context: Context) -> str:
    undecided = [silo for silo in context.silos if silo.admitted["status"] != "True"]
    if not undecided:
        text = context.message if context.explanation.cause.message else _IF_IT_LASTS
        return f"{context.subject} waits {context.since_text} for its silos to admit it. {text}"
    whom = _share(len(undecided), len(context.silos))
    sentences = [f"{context.subject} waits {context.since_text}, without a limit, for {whom} to admit it."]
    objections = [_objection(context, silo) for silo in undecided if silo.admitted["reason"]]
    sentences += shortened_list(objections, MAX_NAMES, "more object.")
    if silent := [silo.reference for silo in undecided if not silo.admitted["reason"]]:
        verb = "have" if len(silent) > 1 else "has"
        sentences.append(f"{join_names(silent, MAX_NAMES, 'others')} {verb} not decided yet.")
    if any(_verb(silo) == "refuses" and not silo.awaits_approval for silo in undecided):
        sentences.append(
            "A refusal ends when the institution changes its policy, or with a new job that respects it."
        )
    return " ".join([*sentences, "Until then no pod exists."])


def _share(some: int, silos: int) -> str:
    if some < silos:
        return f"{some} of its {silos} silos"
    return f"its {silos} silos" if silos > 1 else "its silo"


def _verb(silo: SiloView) -> str:
    """The verb of a silo's objection: one that does not exist, or is not ready, has not refused."""
    unable = silo.admitted["status"] == "Unknown" or silo.admitted["reason"] in (
        "SiloNotFound",
        "SiloNotReady",
    )
    return "cannot decide" if unable else "refuses"


def _objection(context: Context, silo: SiloView) -> str:
    found = silo.admitted
    begin = f" {since_text(found['lastTransitionTime'], context.now)}" if found["lastTransitionTime"] else ""
    if silo.awaits_approval:
        how = _how_to_decide(context, silo)
        return f"{silo.reference} waits{begin} for a person of the institution to decide: {how}."
    return f"{silo.reference} {_verb(silo)}{begin}: {sentence(_objection_text(silo))}"


def _objection_text(silo: SiloView) -> str:
    """What the silo has against the job, without its name."""
    found = silo.admitted
    return str(found["message"] or found["reason"]).replace(f"Silo {silo.name}: ", "")


def _how_to_decide(context: Context, silo: SiloView) -> str:
    """The command of a person of the institution; whose agent the reader may not see says its own."""
    if silo.remote:
        return remote_decision_text(silo.reference, str(silo.agent), silo.namespace)
    if silo.agent is None and silo.admitted["message"]:
        return plain_line(_objection_text(silo)).rstrip(".")
    name = silo.agent or context.job["metadata"]["uid"]
    return f"`kubectl fedsilo approve {name} -n {silo.namespace}`"


def _starting_agents(context: Context) -> str:
    late = [silo for silo in context.silos if silo.ready["status"] != "True"]
    waits = f"{context.subject} waits {context.since_text}"
    if not late:
        return f"{waits} for the agents of its silos to run. {context.message}".rstrip(" .") + "."
    sentences = [f"{waits} for the agents of {_share(len(late), len(context.silos))} to run."]
    problems = [silo.problem(context.now) for silo in late if silo.ready["message"]]
    sentences += shortened_list(problems, MAX_NAMES, "more do not run.")
    if starting := [silo.reference for silo in late if not silo.ready["message"]]:
        verb = "are" if len(starting) > 1 else "is"
        sentences.append(f"{join_names(starting, MAX_NAMES, 'others')} {verb} starting.")
    return " ".join([*sentences, "The deadline of a round counts once they run."])


def _starting_aggregator(context: Context) -> str:
    text = f" {context.message}" if context.explanation.cause.reason else ""
    return (
        f"{context.subject} waits {context.since_text} for its aggregator to run.{text} The silos' agents run "
        "already; no deadline counts while the aggregator is down."
    )


def _in_round(context: Context) -> str:
    round = context.explanation.round
    assert round is not None
    return f"{context.subject} {in_round(round, context.arguments, context.silos, context.now)}"


def _between_rounds(context: Context) -> str:
    done = (
        f"no round is open after {context.rounds}"
        if context.status.get("round")
        else "it has opened no round yet"
    )
    return (
        f"{context.subject} has an aggregator that runs {context.since_text}, but {done}. If that lasts, "
        f"read `kubectl fedsilo logs {context.arguments} --component aggregator`."
    )


_OPERATOR = "`kubectl get pods -A -l app.kubernetes.io/name=fedsilo-operator`"
_IF_IT_LASTS = f"If that lasts, look whether the operator runs: {_OPERATOR}."

_STATES: Mapping[WaitState, Callable[[Context], str]] = {
    WaitState.DELETING: _deleting,
    WaitState.COMPLETE: _complete,
    WaitState.FAILED: _failed_text,
    WaitState.UNOBSERVED: _unobserved_text,
    WaitState.SUSPENDING: _suspending,
    WaitState.SUSPENDED: _suspended_text,
    WaitState.RESUMING: _resuming,
    WaitState.NOT_ACCEPTED: _not_accepted,
    WaitState.ADMITTING: _admitting,
    WaitState.STARTING_AGENTS: _starting_agents,
    WaitState.STARTING_AGGREGATOR: _starting_aggregator,
    WaitState.IN_ROUND: _in_round,
    WaitState.BETWEEN_ROUNDS: _between_rounds,
}
