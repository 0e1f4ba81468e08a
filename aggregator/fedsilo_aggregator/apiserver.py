"""The job's status in the Kubernetes API, by server-side apply. Imported only by an aggregator that reports."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio import client, config

from fedsilo.api.common import Metadata
from fedsilo.errors import ManifestInvalid
from fedsilo_aggregator.report import JobGoneError, Report

MANAGER = "fedsilo-aggregator"
"""Field manager of the aggregator's fields; it never takes one from another."""

REQUEST_TIMEOUT_SECONDS = 10.0
"""Time after which an unanswered request is given up."""


class KubernetesJob:
    """The status of one FederatedJob, which must have the very uid that the aggregator works for."""

    def __init__(self, api: client.ApiClient, job: Metadata) -> None:
        self._objects = client.CustomObjectsApi(api)
        self._job = job

    async def apply(self, status: Mapping[str, Any]) -> None:
        """Apply the aggregator's fields.

        An apply to a status takes no notice of the uid, but does of the version: a dry run, for which the right to
        patch is enough, tells both, so that nothing is ever written to a job that was created anew under the name.

        :raises JobGoneError: when the job is deleted, or is another one by now.
        :raises OSError: when the API server refuses otherwise; with its own message.
        """
        seen = await self._patch({}, dry_run="All")
        if seen["uid"] != self._job.uid:
            raise JobGoneError(f"{self._name} has another uid by now, {seen['uid']}")
        await self._patch(status, resourceVersion=seen["resourceVersion"])

    @property
    def _name(self) -> str:
        return f"job {self._job.namespace}/{self._job.name} with uid {self._job.uid}"

    async def _patch(
        self, status: Mapping[str, Any], dry_run: str | None = None, **version: str
    ) -> Mapping[str, Any]:
        """Apply the status to the job; returns the metadata of the object that comes of it."""
        job = self._job
        body = {
            "apiVersion": "fedsilo.io/v1alpha1",
            "kind": "FederatedJob",
            "metadata": {"namespace": job.namespace, "name": job.name, "uid": job.uid, **version},
            "status": dict(status),
        }
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            response = await self._objects.patch_namespaced_custom_object_status_without_preload_content(
                *("fedsilo.io", "v1alpha1", job.namespace, "federatedjobs", job.name, body),
                field_manager=MANAGER,
                dry_run=dry_run,
                _content_type="application/apply-patch+yaml",
            )
            async with response:
                document = _document(await response.read())
        if response.status == 404 and is_about(document, job.name):
            raise JobGoneError(f"{self._name} does not exist any more")
        if response.status >= 300:
            raise OSError(f"{response.status} {document.get('message') or response.reason}")
        found: Mapping[str, Any] = document["metadata"]
        return found


def is_about(document: Mapping[str, Any], name: str) -> bool:
    """Whether a refusal (meta/v1 Status) is about the object; a server that is starting answers 404 to everything."""
    return (document.get("details") or {}).get("name") == name


def _document(answer: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(answer)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@asynccontextmanager
async def reporting(job: Metadata, claim: str | None) -> AsyncIterator[Report]:
    """A report into the job's status, running until the end of the block.

    It has the credentials of the pod's account, or of the file that `KUBECONFIG` names.

    :param claim: PersistentVolumeClaim that holds the model.
    :raises ManifestInvalid: when there are no credentials.
    """
    async with client.ApiClient(await _configuration()) as api:
        report = Report(KubernetesJob(api, job), claim)
        async with report.running():
            yield report


async def _configuration() -> client.Configuration:
    configuration = client.Configuration()
    try:
        if file := os.environ.get("KUBECONFIG"):
            await config.load_kube_config(file, client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise ManifestInvalid(
            f"--report: no Kubernetes account to report with ({error}); leave the option out, or mount the account's "
            "token"
        ) from error
    return configuration
