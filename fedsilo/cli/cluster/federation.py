"""A job and what belongs to it on the cluster, as far as this login may see it."""

from __future__ import annotations

from collections.abc import Sequence

from fedsilo.api.messages import closest
from fedsilo.api.observed import Object, status_of
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.errors import ManifestInvalid, PolicyRefused

JOBS = "federatedjobs.fedsilo.io"
AGENTS = "siloagents.fedsilo.io"
SILOS = "silos.fedsilo.io"

JOB_UID = "fedsilo.io/job-uid"
SILO = "fedsilo.io/silo"
COMPONENT = "app.kubernetes.io/component"


def get_job(kubectl: Kubectl, name: str) -> Object:
    """The job of that name.

    :raises ManifestInvalid: when there is none, with the nearest name or the namespace that has it.
    """
    job: Object | None = kubectl.find(JOBS, name)
    if job is None:
        raise ManifestInvalid(_no_job(kubectl, name))
    return job


def _no_job(kubectl: Kubectl, name: str) -> str:
    namespace = kubectl.context_namespace()
    fault = f"FederatedJob {name}: there is no such job in namespace {namespace}"
    try:
        jobs = kubectl.get(JOBS, "--all-namespaces")["items"]
    except PolicyRefused:
        jobs = kubectl.get(JOBS)["items"]
    here = [job["metadata"]["name"] for job in jobs if job["metadata"]["namespace"] == namespace]
    elsewhere = [job["metadata"]["namespace"] for job in jobs if job["metadata"]["name"] == name]
    if elsewhere:
        return f"{fault}; it is in {', '.join(elsewhere)}: add -n {elsewhere[0]}"
    if here:
        return f"{fault}; {closest(name, here)}"
    return f"{fault}, and no other either; name its namespace with -n"


def silo_refs(job: Object) -> dict[str, str]:
    """Name of each silo of a job -> its namespace, as the operator found them, or as the job names them."""
    found = status_of(job).get("silos") or job["spec"]["silos"].get("refs") or ()
    return {silo["name"]: silo.get("namespace") or "default" for silo in found}


def of_job(kubectl: Kubectl, resource: str, job: Object) -> tuple[list[Object], list[str]]:
    """Objects that carry the job's label, and the namespaces in which this login may not list them.

    One request for all namespaces, or one for each where that is not allowed.
    """
    label = f"--selector={JOB_UID}={job['metadata']['uid']}"
    try:
        return list(kubectl.get(resource, "--all-namespaces", label)["items"]), []
    except PolicyRefused:
        pass
    found: list[Object] = []
    closed = []
    for namespace in _namespaces(job):
        try:
            found += kubectl.get(resource, label, namespace=namespace)["items"]
        except PolicyRefused:
            closed.append(namespace)
    return found, closed


def _namespaces(job: Object) -> Sequence[str]:
    return list(dict.fromkeys((job["metadata"]["namespace"], *silo_refs(job).values())))
