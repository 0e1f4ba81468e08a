"""The jobs as metrics, from their objects: what is not in the cluster any more has no series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from fedsilo.api.conditions import JobPhase
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.metrics import JOB, Sample, Series
from fedsilo_operator.objects import ref_of

JOBS = Series("fedsilo_jobs", "gauge", ("state",), "Jobs by phase.")
INFO = Series("fedsilo_job_info", "gauge", (*JOB, "uid", "method", "model"), "1 for each job.")
STATE = Series("fedsilo_job_state", "gauge", (*JOB, "state"), "1 for the phase in which the job is.")
ROUND = Series("fedsilo_job_round", "gauge", JOB, "Last complete round.")
ROUNDS = Series("fedsilo_job_rounds", "gauge", JOB, "Rounds in all.")
START = Series(
    "fedsilo_job_round_start_timestamp_seconds", "gauge", JOB, "When the open round began (Unix time)."
)
DEADLINE = Series(
    "fedsilo_job_round_deadline_timestamp_seconds",
    "gauge",
    JOB,
    "When the open round ends at the latest, if the aggregator keeps serving (Unix time).",
)
FINISH = Series(
    "fedsilo_job_finish_timestamp_seconds",
    "gauge",
    JOB,
    "When the job completed or failed (Unix time).",
    renamed=False,
)
SCORE = Series("fedsilo_job_score", "gauge", (*JOB, "metric"), "Latest score of the model, by metric.")
TRAINING = Series(
    "fedsilo_job_training", "gauge", (*JOB, "metric"), "Latest training figure, averaged over the silos."
)
SILO = Series(
    "fedsilo_job_silo_phase",
    "gauge",
    (*JOB, "silo", "phase"),
    "1 for the phase in which a silo's agent is; LeftOut for one that does not take part.",
)

DECLARED_SERIES = (JOBS, INFO, STATE, ROUND, ROUNDS, START, DEADLINE, FINISH, SCORE, TRAINING, SILO)

_NUMBERS = ((ROUND, "round"), (ROUNDS, "rounds"))
_TIMES = ((START, "roundStartTime"), (DEADLINE, "roundDeadline"), (FINISH, "completionTime"))
_FIGURES = ((SCORE, "metrics"), (TRAINING, "training"))


def read(jobs: Iterable[Object]) -> Iterator[Sample]:
    """The jobs' metrics as they are now.

    :param jobs: all FederatedJobs.
    """
    states: Counter[str] = Counter(dict.fromkeys(map(str, JobPhase), 0))
    for job in jobs:
        states[_state(job)] += 1
        yield from _job(job)
    for state, count in states.items():
        yield Sample(JOBS, (state,), count)


def _state(job: Object) -> str:
    return status_of(job).get("phase") or JobPhase.PENDING


def _job(job: Object) -> Iterator[Sample]:
    spec, status, ref = job["spec"], status_of(job), ref_of(job)
    labels = (ref.namespace, ref.name)
    yield Sample(INFO, (*labels, uid_of(job), spec["method"]["name"], spec["model"]["name"]), 1)
    yield Sample(STATE, (*labels, _state(job)), 1)
    for series, field in _NUMBERS:
        if field in status:
            yield Sample(series, labels, status[field])
    for series, field in _TIMES:
        # An aggregator writes it, and no aggregator may take the operator's metrics away.
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            yield Sample(series, labels, parse_timestamp(status[field]).timestamp())
    for series, field in _FIGURES:
        for metric, value in (status.get(field) or {}).items():
            yield Sample(series, (*labels, metric), value)
    for silo in status.get("silos") or ():
        if silo.get("phase"):
            yield Sample(SILO, (*labels, silo["name"], silo["phase"]), 1)
