"""What a job waits for, since when, until when, and what a person can do: one paragraph, and a pure function.

The states are asked in order; the first that knows the answer gives it. The operator's own messages name the remedy, so
they are passed on; what is added here is the time, the silo, and the command to type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fedsilo.api.observed import condition, holds, status_of
from fedsilo.cli.cluster.facts import Object, listed, reference, sentence, shortened
from fedsilo.cli.cluster.moments import age, at, since
from fedsilo.cli.cluster.rounds import in_round
from fedsilo.cli.cluster.silos import SiloView, views

PROMPT = 30
"""Seconds in which an operator that runs has looked at a new job."""

_DOUBTS = ("Unverified", "Unreadable")
"""Reasons for which the operator itself cannot tell whether a job can run."""


@dataclass(frozen=True)
class Scene:
    """Everything that the answer follows from."""

    job: Object
    silos: Sequence[SiloView]
    now: datetime

    @property
    def subject(self) -> str:
        """How every answer begins."""
        return f"Job {reference(self.job)}"

    @property
    def place(self) -> str:
        """The job as the arguments of a command."""
        return f"{self.job['metadata']['name']} -n {self.job['metadata']['namespace']}"

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's status."""
        return status_of(self.job)

    def condition(self, name: str) -> Mapping[str, Any]:
        """The job's condition; Unknown and since the job's creation where there is none yet."""
        created = self.job["metadata"]["creationTimestamp"]
        none = {"status": "Unknown", "reason": "", "message": "", "lastTransitionTime": created}
        return condition(self.job, name) or none

    def since(self, name: str) -> str:
        """Since when that condition is what it is."""
        return since(self.condition(name)["lastTransitionTime"], self.now)

    def message(self, name: str) -> str:
        """What the operator says about that condition, as a sentence."""
        found = self.condition(name)
        return sentence(f"{found['reason']}: {found['message']}" if found["message"] else found["reason"])

    @property
    def rounds(self) -> str:
        """How far it came, such as `7 of 50 rounds`."""
        done, all_ = self.status.get("round") or 0, self.status.get("rounds")
        return f"{done} of {all_} rounds" if all_ else f"{done} rounds"


def explain(job: Object, agents: Sequence[Object], now: datetime) -> str:
    """What the job waits for, as one paragraph.

    :param agents: those SiloAgents of the job that the reader may see; for the others the job's status must do.
    :param now: with the time zone in which times are told.
    """
    scene = Scene(job, views(job, agents), now)
    told = next(words for state in STATES if (words := state(scene)) is not None)
    return f"{told}{_unseen_change(scene, told)}"


def _deleted(scene: Scene) -> str | None:
    if (begin := scene.job["metadata"].get("deletionTimestamp")) is None:
        return None
    left = [f"{silo.agent} in {silo.namespace}" for silo in scene.silos if silo.agent]
    waits = f"for its SiloAgents to go: {listed(left)}" if left else "for the operator to let it go"
    return (
        f"{scene.subject} is being deleted {since(begin, scene.now)} and waits {waits}. {_IF_IT_LASTS} "
        "Its model's volume stays."
    )


def _complete(scene: Scene) -> str | None:
    if not holds(scene.job, "Complete"):
        return None
    scores = [f"{name} {value:.4g}" for name, value in sorted((scene.status.get("metrics") or {}).items())]
    told = f"{scene.subject} is complete {scene.since('Complete')}: {', '.join([scene.rounds, *scores])}."
    if not (scene.status.get("model") or {}).get("claim"):
        return f"{told} Its status names no model."
    return f"{told} Fetch its model with `kubectl fedsilo model {scene.place} -o model.safetensors`."


def _failed(scene: Scene) -> str | None:
    if not holds(scene.job, "Failed"):
        return None
    begin = at(scene.condition("Failed")["lastTransitionTime"], scene.now)
    again = f"delete the job with `kubectl delete federatedjob {scene.place}` and apply it again"
    if not scene.status.get("startTime"):
        return (
            f"{scene.subject} cannot run as it is written and failed {begin}. {scene.message('Failed')} "
            f"Correct the manifest, {again}."
        )
    done = f"after {scene.rounds}" if scene.status.get("round") else "before its first round was complete"
    doubt = f" {scene.message('Accepted')}" if scene.condition("Accepted")["reason"] in _DOUBTS else ""
    return (
        f"{scene.subject} failed {begin} {done}. {scene.message('Failed')}{doubt} A failed job stays failed: "
        f"read `kubectl fedsilo logs {scene.place}`, mend the cause, {again}."
    )


def _unobserved(scene: Scene) -> str | None:
    if scene.status.get("observedGeneration") is not None:
        return None
    created = scene.job["metadata"]["creationTimestamp"]
    if age(created, scene.now) <= PROMPT:
        return f"{scene.subject} was made {at(created, scene.now)}; the operator is about to look at it."
    return (
        f"{scene.subject} waits for the operator {since(created, scene.now)}: nothing has looked at it, so no operator "
        f"runs in this cluster or it cannot reach the API server. Look with {_OPERATOR}."
    )


def _suspended(scene: Scene) -> str | None:
    if scene.job["spec"].get("suspend"):
        resume = (
            f'`kubectl patch federatedjob {scene.place} --type merge -p \'{{"spec":{{"suspend":false}}}}\'`'
        )
        if holds(scene.job, "Suspended"):
            kept = f" Its {scene.rounds} are kept." if scene.status.get("round") else ""
            return (
                f"{scene.subject} is suspended {scene.since('Suspended')}, without a limit.{kept} "
                f"It goes on with {resume}."
            )
        return f"{scene.subject} is to be suspended and waits for its pods to end. It goes on with {resume}."
    if holds(scene.job, "Suspended"):
        return f"{scene.subject} was suspended and waits for the operator to resume it. {_IF_IT_LASTS}"
    return None


def _unaccepted(scene: Scene) -> str | None:
    if scene.condition("Accepted")["status"] != "False":
        return None
    return (
        f"{scene.subject} waits {scene.since('Accepted')}, without a limit. {scene.message('Accepted')} "
        "It goes on by itself once that is mended; until then no pod exists."
    )


def _unadmitted(scene: Scene) -> str | None:
    if holds(scene.job, "Admitted"):
        return None
    begin = scene.since("Admitted")
    open_ = [silo for silo in scene.silos if silo.admitted["status"] != "True"]
    if not open_:
        said = scene.message("Admitted") if scene.condition("Admitted")["message"] else _IF_IT_LASTS
        return f"{scene.subject} waits {begin} for its silos to admit it. {said}"
    whole = _share(len(open_), len(scene.silos))
    told = [f"{scene.subject} waits {begin}, without a limit, for {whole} to admit it."]
    told += shortened([_objection(scene, silo) for silo in open_ if silo.admitted["reason"]], "more object.")
    if undecided := [silo.reference for silo in open_ if not silo.admitted["reason"]]:
        told.append(f"{listed(undecided)} {'have' if len(undecided) > 1 else 'has'} not decided yet.")
    if any(_verb(silo) == "refuses" and not silo.waits_for_a_person for silo in open_):
        told.append(
            "A refusal ends when the institution changes its policy, or with a new job that respects it."
        )
    return " ".join([*told, "Until then no pod exists."])


def _share(some: int, silos: int) -> str:
    if some < silos:
        return f"{some} of its {silos} silos"
    return f"its {silos} silos" if silos > 1 else "its silo"


def _verb(silo: SiloView) -> str:
    """A silo that is not there, or not ready, has not said no."""
    unable = silo.admitted["status"] == "Unknown" or silo.admitted["reason"] in (
        "SiloNotFound",
        "SiloNotReady",
    )
    return "cannot decide" if unable else "refuses"


def _objection(scene: Scene, silo: SiloView) -> str:
    found, name = silo.admitted, silo.agent or scene.job["metadata"]["uid"]
    begin = f" {since(found['lastTransitionTime'], scene.now)}" if found["lastTransitionTime"] else ""
    if silo.waits_for_a_person:
        approve = f"`kubectl fedsilo approve {name} -n {silo.namespace}`"
        return f"{silo.reference} waits{begin} for a person of the institution to decide: {approve}."
    said = str(found["message"] or found["reason"]).replace(f"Silo {silo.name}: ", "")
    return f"{silo.reference} {_verb(silo)}{begin}: {sentence(said)}"


def _unready(scene: Scene) -> str | None:
    if holds(scene.job, "Running") or holds(scene.job, "SilosReady"):
        return None
    late = [silo for silo in scene.silos if silo.ready["status"] != "True"]
    told = [f"{scene.subject} waits {scene.since('SilosReady')}"]
    if not late:
        return (
            f"{told[0]} for the agents of its silos to run. {scene.message('SilosReady')}".rstrip(" .") + "."
        )
    told[0] += f" for the agents of {_share(len(late), len(scene.silos))} to run."
    told += shortened([silo.trouble(scene.now) for silo in late if silo.ready["message"]], "more do not run.")
    if starting := [silo.reference for silo in late if not silo.ready["message"]]:
        told.append(f"{listed(starting)} {'are' if len(starting) > 1 else 'is'} starting.")
    return " ".join([*told, "No deadline counts before all of them run."])


def _aggregator(scene: Scene) -> str | None:
    if holds(scene.job, "Running"):
        return None
    said = f" {scene.message('Running')}" if scene.condition("Running")["reason"] else ""
    return (
        f"{scene.subject} waits {scene.since('Running')} for its aggregator to run.{said} The silos' agents run "
        "already; no deadline counts while the aggregator is down."
    )


def _in_round(scene: Scene) -> str:
    told = in_round(scene.job, scene.silos, scene.now)
    if told is None:
        done = (
            f"no round is open after {scene.rounds}"
            if scene.status.get("round")
            else "it has opened no round yet"
        )
        return (
            f"{scene.subject} has an aggregator that runs {scene.since('Running')}, but {done}. If that lasts, "
            f"read `kubectl fedsilo logs {scene.place} --component aggregator`."
        )
    return f"{scene.subject} {told}"


def _unseen_change(scene: Scene, told: str) -> str:
    seen, written = scene.status.get("observedGeneration"), scene.job["metadata"].get("generation")
    if seen is None or written is None or seen >= written:
        return ""
    remedy = "" if _IF_IT_LASTS in told else f" {_IF_IT_LASTS}"
    return f" The operator has not acted on the last change of the spec yet.{remedy}"


_OPERATOR = "`kubectl get pods -A -l app.kubernetes.io/name=fedsilo-operator`"
_IF_IT_LASTS = f"If that lasts, look whether the operator runs: {_OPERATOR}."

STATES: Sequence[Callable[[Scene], str | None]] = (
    _deleted,
    _complete,
    _failed,
    _unobserved,
    _suspended,
    _unaccepted,
    _unadmitted,
    _unready,
    _aggregator,
    _in_round,
)
