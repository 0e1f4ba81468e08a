"""A consortium on the test cluster: one namespace of jobs, some of institutions, and what a person reads about a job.

Many short jobs share it. Texts are compared with golden files, after what differs from run to run is taken out.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.events import event_line
from hack.cluster.kubectl import Kubectl
from hack.examples import documents
from tests.cluster.federation import END_SECONDS
from tests.cluster.namespace import RESTRICTED_LABELS, Namespace, wait_until

JOBS = "federation"

_EXAMPLE = documents("fedavg.yaml")
_SILO = next(item for item in _EXAMPLE if item["kind"] == "Silo")
_JOB = next(item for item in _EXAMPLE if item["kind"] == "FederatedJob")

_VARYING_TEXTS = (
    (r"\b(since|at) (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \([^)]*\)", r"\1 TIME"),
    (r"\bby \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "by TIME"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
    (r"(?<=-)[0-9a-f]{8}\b", "HASH"),
    (r"(?<=cannot be pulled: ).*?(?= Push the image)", "WORDS OF THE RUNTIME."),
    (r"(?<=nvidia\.com/gpu: ).*?(?= Free or add a node)", "WORDS OF THE SCHEDULER."),
)
"""What differs from run to run, or from one version of Kubernetes to the next."""


@dataclass(frozen=True)
class Consortium:
    """Namespaces that belong together, told from others by a suffix."""

    kubectl: Kubectl
    suffix: str

    @property
    def jobs(self) -> Namespace:
        """Where the jobs are."""
        return self.institution(JOBS)

    def institution(self, name: str) -> Namespace:
        """Namespace of an institution."""
        return Namespace(self.kubectl, f"{name}-{self.suffix}")

    def silo(self, institution: str, name: str, **spec: Any) -> Object:
        """A Silo that offers the digits and admits what the examples ask for.

        :param spec: sections that replace those of the example; `policy` is merged, without what is None.
        """
        made: Object = copy.deepcopy(_SILO)
        made["metadata"] = {"name": name, "namespace": self.institution(institution).name}
        policy = made["spec"]["policy"] | spec.pop("policy", {})
        made["spec"] |= spec | {
            "policy": {name: value for name, value in policy.items() if value is not None}
        }
        return made

    def job(self, name: str, *silos: str, **spec: Any) -> Object:
        """A job of one short round over these silos, each given as `institution/name`.

        :param spec: sections that replace those of the example, merged one level deep.
        """
        made: Object = copy.deepcopy(_JOB)
        made["metadata"] = {"name": name, "namespace": self.jobs.name}
        refs = [dict(zip(("namespace", "name"), silo.split("/"), strict=True)) for silo in silos]
        for ref in refs:
            ref["namespace"] = self.institution(ref["namespace"]).name
        short = {
            "training": {"rounds": 1, "localEpochs": 1},
            "participation": {"minSilos": len(silos)},
            "silos": {"refs": refs},
        }
        for changes in (short, spec):
            for field, value in changes.items():
                before = made["spec"].get(field)
                merged = isinstance(before, dict) and isinstance(value, dict) and field != "silos"
                made["spec"][field] = before | value if merged else value
        return made

    def observed_job(self, name: str) -> Object:
        """The job as it is now."""
        return self.jobs.get("federatedjob", name)

    def condition(self, name: str, kind: str) -> Mapping[str, Any]:
        """A condition of the job; empty while it has none."""
        found = (self.observed_job(name).get("status") or {}).get("conditions") or ()
        return next((item for item in found if item["type"] == kind), {})

    def wait_for_condition(
        self, name: str, kind: str, status: str, reason: str, *words: str
    ) -> Mapping[str, Any]:
        """Wait until the job's condition is this one, with these words in its message."""
        last: Mapping[str, Any] = {}

        def matching_condition() -> Mapping[str, Any] | None:
            nonlocal last
            last = self.condition(name, kind)
            if kind == "Complete" and last.get("status") != status:
                failed = self.condition(name, "Failed")
                assert failed.get("status") != "True", f"job {name} failed: {failed['message']}"
            reached = (last.get("status"), last.get("reason")) == (status, reason)
            return last if reached and all(word in last["message"] for word in words) else None

        try:
            return wait_until(matching_condition, f"{kind}={status} {reason} of job {name}", END_SECONDS)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.story_of(name)}") from None

    def condition_report(self, name: str, kind: str, status: str, reason: str, *words: str) -> str:
        """What a person reads once the job's condition is this one: condition, Event and `kubectl fedsilo why`."""
        found = self.wait_for_condition(name, kind, status, reason, *words)
        event = wait_until(lambda: self._event(name, found), f"an Event {reason} of job {name}")
        why = self.kubectl.fedsilo("why", name, "-n", self.jobs.name)
        lines = [f"{kind}={status} {reason}", found["message"], f"Event: {event['type']}", f"why: {why}"]
        return self.normalized_text("\n".join(lines)).strip()

    def normalized_text(self, text: str) -> str:
        """The text without what differs from run to run."""
        text = text.replace(f"-{self.suffix}", "")
        for pattern, instead in _VARYING_TEXTS:
            text = re.sub(pattern, instead, text)
        return text

    def agent(self, institution: str, job: str) -> Object | None:
        """The job's SiloAgent in an institution."""
        found = self.institution(institution).select("siloagents", f"fedsilo.io/job-name={job}")
        return found[0] if found else None

    def pods(self, job: str) -> list[Object]:
        """Pods of the job, wherever they are."""
        found = self.kubectl.get("pods", "-A", "-l", f"fedsilo.io/job-name={job}")["items"]
        return [pod for pod in found if pod["metadata"]["namespace"].endswith(self.suffix)]

    def story_of(self, job: str) -> str:
        """What a person would look at after a failure."""
        labels = f"--selector=fedsilo.io/job-name={job}"
        return "\n".join(
            [
                self.jobs.run("describe", "federatedjob", job),
                self.kubectl.run("describe", "siloagents,pods", "-A", labels),
            ]
        )

    def _event(self, name: str, found: Mapping[str, Any]) -> Object | None:
        about = f"involvedObject.kind=FederatedJob,involvedObject.name={name},reason={found['reason']}"
        events, line = self.jobs.select("events", fields=about), event_line(found["message"])
        return next((event for event in events if event["message"] == line), None)


@contextmanager
def new_consortium(kubectl: Kubectl, *institutions: str) -> Iterator[Consortium]:
    """Create the consortium's namespaces; all of them go afterwards, with the jobs in them."""
    made = Consortium(kubectl, uuid.uuid4().hex[:6])
    names = [made.institution(name).name for name in (JOBS, *institutions)]
    for name in names:
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED_LABELS}}
        )
    try:
        yield made
    finally:
        # The namespace as a whole: the operator must let the jobs in it go.
        kubectl.run("delete", "namespace", made.jobs.name, "--wait", timeout=120)
        kubectl.run("delete", "namespace", *names[1:], "--ignore-not-found", "--wait=false")


def golden(path: Path) -> Mapping[str, str]:
    """What stands under each name of a golden file."""
    blocks = re.split(r"^# ", path.read_text(), flags=re.MULTILINE)[1:]
    return {title: text.strip() for title, _, text in (block.partition("\n") for block in blocks)}
