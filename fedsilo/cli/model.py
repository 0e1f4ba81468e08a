"""`fedsilo model` fetches the model of a complete job and checks its digest.

The model lies in a volume that no pod uses any more. A pod that can do nothing but read it lives for as long as the
copy takes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, condition, holds, reference, status_of
from fedsilo.cli.cluster.federation import get_job
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.cli.cluster.reading import Copy, ReaderPod, reader_pod, reading
from fedsilo.errors import JobFailed, ManifestInvalid, Problem
from fedsilo.files.durable import publish

CURVES = "curves.tfevents"
"""The learning curves, where the job asked for them; beside the model."""

CARD = "MODEL_CARD.md"
"""The model card, beside the model too; a job that was complete before there were any has none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, and where the model goes."""
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="the new file; description and card are beside it. With --with-provenance the new directory of all of it",
    )
    parser.add_argument(
        "--with-provenance",
        action="store_true",
        help="also what the model was made from, for `fedsilo verify`, with all updates that the job kept",
    )
    parser.add_argument(
        "--image", help="image of the pod that reads it (default: that of the job's aggregator)"
    )
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the model to FILE, and beside it its description, .json, its card, .md, and its learning curves.

    :raises ManifestInvalid: when the job is not complete, or a file is in the way.
    :raises JobFailed: when the job has failed.
    :raises Problem: when what came is not what the job's status says.
    """
    if args.with_provenance:
        return _fetch_directory(args)
    target: Path = args.output
    description = target.with_suffix(".json")
    beside = {CARD: target.with_suffix(".md"), CURVES: target.with_suffix(".tfevents")}
    _require_free_paths(target, description, *beside.values())
    kubectl = Kubectl.of(args)
    job = get_job(kubectl, args.job)
    model = _model_of(job, args.job)
    reader = _reader(kubectl, job, model["claim"], args.image)
    part, described = (file.with_name(f"{file.name}.part") for file in (target, description))
    try:
        with reading(kubectl, reader) as pod:
            path = Path(model["path"])
            text = pod.content(str(path.with_name("model.json")))
            others = {name: pod.content(str(path.with_name(name))) for name in _extra_files(job, pod)}
            copy = pod.copy(model["path"], part)
        _require_digest(copy, text, model["sha256"], reference(job))
        with part.open("r+b") as file, described.open("wb") as words:
            words.write(text)
            publish(file, part, target)
            publish(words, described, description)
        for name, content in others.items():
            beside[name].write_bytes(content)
    finally:
        part.unlink(missing_ok=True)
        described.unlink(missing_ok=True)
    print(f"{target}: {copy.size:,} bytes, sha256 {copy.sha256} as the status of job {reference(job)} says")
    return 0


def _fetch_directory(args: argparse.Namespace) -> int:
    """Write all that was released into the new directory.

    :raises ProvenanceInvalid: when the provenance cannot be read.
    """
    from fedsilo.cli.cluster.release import copy_release, new_directory

    target: Path = args.output
    with new_directory(target) as part:
        kubectl = Kubectl.of(args)
        job = get_job(kubectl, args.job)
        model = _model_of(job, args.job)
        reader = _reader(kubectl, job, model["claim"], args.image)
        kept = bool((job["spec"].get("aggregator") or {}).get("keepUpdates"))
        with reading(kubectl, reader) as pod:
            copy = copy_release(pod, model["path"], kept, _extra_files(job, pod), part)
        _require_digest(copy, (part / "model.json").read_bytes(), model["sha256"], reference(job))
    print(f"{target}: sha256 of the model is {copy.sha256} as the status of job {reference(job)} says")
    print(f"check what it was made from with fedsilo verify {target}")
    return 0


def _extra_files(job: Object, pod: ReaderPod) -> list[str]:
    """Further files beside the model."""
    curves = [CURVES] if (job["spec"].get("output") or {}).get("tensorboard") else []
    return [name for name in (CARD,) if name in pod.names()] + curves


def _require_free_paths(target: Path, *beside: Path) -> None:
    if target in beside:
        raise ManifestInvalid(f"{target}: another file takes this name; end the model's in .safetensors")
    if not target.parent.is_dir():
        raise ManifestInvalid(f"{target.parent}: there is no such directory; make it first")
    for file in (target, *beside):
        if file.exists():
            raise ManifestInvalid(f"{file}: is there already; remove it or name another file with -o")


def _model_of(job: Object, name: str) -> dict[str, Any]:
    """Claim, path and digest of the model."""
    if holds(job, ConditionType.FAILED):
        found = condition(job, ConditionType.FAILED) or {}
        raise JobFailed(
            f"job {reference(job)} has no model: it failed, {found['reason']}: {found['message']}"
        )
    ask = f"see kubectl fedsilo why {name} -n {job['metadata']['namespace']}"
    if not holds(job, ConditionType.COMPLETE):
        raise ManifestInvalid(f"job {reference(job)} is not complete and has no model yet; {ask}")
    model = status_of(job).get("model") or {}
    for field in ("claim", "path", "sha256"):
        if not model.get(field):
            raise ManifestInvalid(f"job {reference(job)}: status.model.{field} is missing; {ask}")
    return dict(model)


def _reader(kubectl: Kubectl, job: Object, claim: str, image: str | None) -> Object:
    """The pod that reads the claim: with image, user and pull secrets of the aggregator that wrote it.

    :param image: another image, so that the aggregator may be gone.
    :raises ManifestInvalid: when it is, and no other image is named.
    """
    name = f"{job['metadata']['name']}-aggregator"
    made = kubectl.find("jobs.batch", name, namespace=job["metadata"]["namespace"])
    if made is None and image is not None:
        return reader_pod(job, claim, image)
    if made is None:
        raise ManifestInvalid(
            f"Job {name} is gone, which says what image to read with; name one with --image"
        )
    writer = made["spec"]["template"]["spec"]
    return reader_pod(job, claim, image or str(writer["containers"][0]["image"]), writer)


def _require_digest(copy: Copy, description: bytes, expected: str, job: str) -> None:
    """Both files are of the model that the status names."""
    try:
        described = json.loads(description)["sha256"]
    except (ValueError, TypeError, KeyError):
        described = "nothing that can be read"
    for name, found in (("the model that came", copy.sha256), ("its model.json", described)):
        if found != expected:
            raise Problem(
                "digest-mismatch",
                f"sha256 of {name} is {found}, but the status of job {job} says {expected}; nothing was kept: "
                "fetch it again, and if it stays so, the volume was changed",
            )
