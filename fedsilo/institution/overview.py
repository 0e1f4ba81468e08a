"""What there is to know of a silo, from its directory alone: the process that serves it need not run."""

from __future__ import annotations

from typing import Any

from fedsilo.api.observed import Object, status_of
from fedsilo.files.json_files import read_json
from fedsilo.files.locking import DirectoryLock
from fedsilo.institution.agent_run import job_of
from fedsilo.institution.deciding import records
from fedsilo.institution.directory import SiloDirectory


def overview(directory: SiloDirectory) -> dict[str, Any]:
    """The silo, its hub and its jobs as plain JSON values.

    :raises ManifestInvalid: when the directory is no silo's, or another user's.
    :raises FileDamaged: when a file of it is not as it was written.
    """
    member, key = directory.require_membership(), directory.signing_key()
    said: dict[str, Any] = read_json(directory.serving) or {}
    serves = _is_served(directory)
    serving = {name: said[name] for name in ("pid", "since", "processes")} if serves and said else None
    hub = {"url": member.hub.url, "key": member.hub.key, "contact": said.get("hub")}
    return {
        "silo": member.silo,
        "directory": str(directory.root),
        "publicKey": key.verify_key.to_text(),
        "fingerprint": key.verify_key.fingerprint,
        "hub": hub,
        "hasLeft": directory.leaving_file.exists(),
        "serving": serving,
        "fault": said.get("fault", "") if serves else "",
        "jobs": [_job(record) for record in records(directory)],
    }


def _is_served(directory: SiloDirectory) -> bool:
    with DirectoryLock(directory.root) as lock:
        return not lock.acquire()


def _job(record: Object) -> dict[str, Any]:
    job, status = job_of(record), status_of(record)
    return {
        "name": record["metadata"]["name"],
        "uid": record["metadata"]["uid"],
        "job": f"{job['namespace']}/{job['name']}",
        "jobUid": job["uid"],
        "since": record["metadata"]["creationTimestamp"],
        "phase": status.get("phase", "Pending"),
        "message": status.get("message", ""),
        "left": status.get("receipts"),
        "gone": record.get("gone"),
    }
