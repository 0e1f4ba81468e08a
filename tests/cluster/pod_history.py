"""Every pod of a job as the API server told of it: how many there were, and whether two ever lived at once."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl

_LABELS = r"app\.kubernetes\.io/component", r"fedsilo\.io/silo"
_FIELDS = ["metadata.name", "status.phase", *(f"metadata.labels.{label}" for label in _LABELS)]
_LINE = "|".join(["{.type}", *(f"{{.object.{path}}}" for path in _FIELDS)]) + '{"\\n"}'


@dataclass
class PodHistory:
    """What was seen so far, by the place that a pod takes: the aggregator's, or that of guard or trainer in a silo.

    :param made: place -> how many pods it had, one after the other.
    :param doubles: pods that were alive in one place at the same time.
    """

    made: Counter[str] = field(default_factory=Counter)
    doubles: list[str] = field(default_factory=list)
    _alive: dict[str, set[str]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def follow(self, lines: Iterable[str]) -> None:
        """Take in changes until there are no more."""
        for line in lines:
            change, name, phase, component, silo = line.rstrip("\n").split("|")
            place = f"{silo}/{component}" if silo else component
            self._saw(place, name, alive=change != "DELETED" and phase not in ("Succeeded", "Failed"))

    def _saw(self, place: str, name: str, *, alive: bool) -> None:
        if name not in self._known:
            self._known.add(name)
            self.made[place] += 1
        present = self._alive.setdefault(place, set())
        if alive:
            present.add(name)
        else:
            present.discard(name)
        if len(present) > 1:
            self.doubles.append(f"{place}: {', '.join(sorted(present))}")


@contextmanager
def watched_pods(kubectl: Kubectl, job: Object) -> Iterator[PodHistory]:
    """Follow the pods of a job in all namespaces for as long as the block runs."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    selector = f"fedsilo.io/job-name={name},fedsilo.io/job-namespace={namespace}"
    command = kubectl.command("get", "pods", "--all-namespaces", f"--selector={selector}")
    command += ["--watch", "--output-watch-events", f"--output=jsonpath={_LINE}"]
    pods = PodHistory()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=pods.follow, args=(process.stdout,))
        reader.start()
        try:
            yield pods
        finally:
            process.terminate()
            reader.join()
