"""From a file to a federation: one FederatedJob and the Silos that take part.

Everything wrong is reported at once, so that a person corrects a file in one go. Whether method, model and
loaders exist and like their settings is asked in `fedsilo.validation`, which knows the registries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.api.common import API_VERSION, ObjectRef
from fedsilo.api.contradictions import contradictions, quorum_findings
from fedsilo.api.documents import Document, DocumentList, read_documents
from fedsilo.api.faults import ABSENT_VALUE, Fault, ManifestFaults, first_faults
from fedsilo.api.job import FederatedJob
from fedsilo.api.messages import closest, faults_of
from fedsilo.api.partial import further_faults, understood_part
from fedsilo.api.silo import Silo
from fedsilo.api.silo_template import TEMPLATE, silos_of

__all__ = ["Fault", "JobManifest", "ManifestFaults", "load", "load_document"]

Model = TypeVar("Model", bound=BaseModel)

_VERSIONS = {"FederatedJob": API_VERSION, "Silo": API_VERSION, TEMPLATE: API_VERSION, "Namespace": "v1"}


@dataclass(frozen=True)
class JobManifest:
    """A job and its silos.

    :param file: the file as the person named it.
    :param silos: in the order of `spec.silos.refs`; for a selector by namespace and name.
    :param places: object such as "Silo north/a" -> its document in the file, for the lines of later faults.
    :param documents: what it was read from, for variations of it.
    :param others: documents of the file that are objects of other APIs, which only kubectl reads.
    """

    file: str
    job: FederatedJob
    silos: tuple[Silo, ...]
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    documents: tuple[Document, ...] = field(default=(), compare=False, repr=False)
    others: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def fault(self, owner: FederatedJob | Silo, path: str, value: object, problem: str, remedy: str) -> Fault:
        """A fault in the document of the job or of one of the silos."""
        document = self.places.get(f"{owner.kind} {owner}", f"{owner.kind} {owner.metadata.name}")
        return Fault(self.file, document, path, value, problem, remedy)


def load(path: Path) -> JobManifest:
    """Read and validate a job's manifest file.

    :raises ManifestFaults: with all faults of the file at once.
    """
    parsed = parse_manifest(str(path), read_documents(path))
    if parsed.all_faults or parsed.federation is None:
        raise ManifestFaults(first_faults(parsed.all_faults))
    return parsed.federation


def load_document(path: Path, model: type[Model]) -> Model:
    """Read a file that holds a single object, in YAML or JSON.

    :raises ManifestFaults: with all faults of the file at once.
    """
    contents = read_documents(path)
    faults = list(contents.faults)
    if contents.complete and not faults and len(contents.documents) != 1:
        problem = f"holds {len(contents.documents)} documents"
        faults.append(Fault(str(path), "", "", ABSENT_VALUE, problem, f"give exactly one {model.__name__}"))
    found = [_parse(document, model, faults) for document in contents.documents[:1]]
    if faults or not found or found[0] is None:
        raise ManifestFaults(first_faults(faults))
    return found[0]


@dataclass(frozen=True)
class ParsedManifest:
    """What a file says, as far as it can be understood.

    :param federation: None where there is not one job.
    :param silos: all of the file, each with its document.
    :param faults: of single documents, without which the rest is understood.
    :param joint_faults: of what the documents say together.
    """

    federation: JobManifest | None
    silos: tuple[tuple[Document, Silo], ...]
    faults: tuple[Fault, ...]
    joint_faults: tuple[Fault, ...] = ()

    @property
    def all_faults(self) -> tuple[Fault, ...]:
        """Faults of single documents, then those of all together."""
        return self.faults + self.joint_faults


def parse_manifest(file: str, contents: DocumentList) -> ParsedManifest:
    """What these documents say; what depends on a document that cannot be understood is no fault."""
    others = tuple(str(document) for document in contents.documents if _is_of_another_api(document))
    own = (document for document in contents.documents if not _is_of_another_api(document))
    contents = replace(contents, documents=tuple(own))
    faults = list(contents.faults)
    jobs: list[tuple[Document, FederatedJob]] = []
    silos: list[tuple[Document, Silo]] = []
    for document in contents.documents:
        if not _kind_is_known(document, faults):
            continue
        if document.kind == "FederatedJob" and (job := _parse(document, FederatedJob, faults)):
            jobs.append((document, job))
        elif document.kind == "Silo" and (silo := _parse(document, Silo, faults)):
            silos.append((document, silo))
        elif document.kind == TEMPLATE:
            silos += [(document, silo) for silo in _silos_of(document, faults)]
    faults += _count_faults(file, contents)
    faults += _repeated_silos(silos)
    if len(jobs) != 1:
        return ParsedManifest(None, tuple(silos), tuple(faults))
    where, job = jobs[0]
    chosen = _selected_silos(job, {str(silo): silo for _, silo in silos})
    found = [where.fault(*finding) for finding in contradictions(job)]
    stated = {document.number for document in contents.documents if document.kind == TEMPLATE}
    if contents.complete and stated <= {document.number for document, _ in silos}:
        # A Silo document that could not be understood is there all the same.
        named = {ref for document in contents.documents for ref in _silo_named(document)}
        named |= {str(silo) for _, silo in silos}
        found += _silo_faults(where, job, chosen, named)
    places = {f"Silo {silo}": str(document) for document, silo in silos} | {f"FederatedJob {job}": str(where)}
    federation = JobManifest(file, job, tuple(chosen), places, contents.documents, others)
    return ParsedManifest(federation, tuple(silos), tuple(faults), tuple(further_faults(faults, found)))


def _is_of_another_api(document: Document) -> bool:
    """Whether it is an object that belongs to a job's file and is not fedsilo's, such as a ConfigMap."""
    kind, version = document.kind, document.content.get("apiVersion")
    ours = API_VERSION.partition("/")[0]
    return kind != "" and kind not in _VERSIONS and isinstance(version, str) and not version.startswith(ours)


def _kind_is_known(document: Document, faults: list[Fault]) -> bool:
    kind, version = (
        document.content.get("kind", ABSENT_VALUE),
        document.content.get("apiVersion", ABSENT_VALUE),
    )
    if kind == "SiloAgent":
        problem = "is a kind that the operator writes itself"
        faults.append(document.fault("kind", kind, problem, "remove this document"))
    elif not isinstance(kind, str) or kind not in _VERSIONS:
        problem = "is missing" if kind is ABSENT_VALUE else "is not a known kind"
        faults.append(document.fault("kind", kind, problem, closest(kind, list(_VERSIONS))))
    elif version != _VERSIONS[kind]:
        problem = "is missing" if version is ABSENT_VALUE else f"is not a version of {kind}"
        faults.append(document.fault("apiVersion", version, problem, f"use {_VERSIONS[kind]}"))
    else:
        return True
    return False


def _parse(document: Document, model: type[Model], faults: list[Fault]) -> Model | None:
    """The object of a document; with faults, which are added, what is understood of it."""
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        faults += faults_of(error, model, file=document.file, document=str(document))
        return understood_part(document.content, model, error)


def _silos_of(document: Document, faults: list[Fault]) -> list[Silo]:
    """The silos of a template; where they have faults, those of the first, which all of them have."""
    parts, own = silos_of(document)
    faults += own
    found: list[Silo] = []
    for part in parts:
        wrong: list[Fault] = []
        silo = _parse(part, Silo, wrong)
        if silo is None or wrong:
            faults += [replace(fault, document=str(document)) for fault in wrong]
            return []
        found.append(silo)
    return found


def _count_faults(file: str, contents: DocumentList) -> Iterator[Fault]:
    """A file holds exactly one job; a document that could not be understood counts as what it says it is."""
    jobs = [document for document in contents.documents if document.kind == "FederatedJob"]
    if contents.complete and not contents.documents and not contents.faults:
        yield Fault(file, "", "", ABSENT_VALUE, "is empty", "write one FederatedJob and its Silos")
    elif (
        contents.complete and not jobs and all(document.kind in _VERSIONS for document in contents.documents)
    ):
        yield Fault(file, "", "", ABSENT_VALUE, "holds no FederatedJob", "add one")
    for document in jobs[1:]:
        problem = f"is a second FederatedJob after document {jobs[0].number}"
        yield document.fault("kind", "FederatedJob", problem, "put each job in a file of its own")


def _repeated_silos(silos: Sequence[tuple[Document, Silo]]) -> Iterator[Fault]:
    seen: dict[str, Document] = {}
    for document, silo in silos:
        name = silo.metadata.name
        if name in seen:
            problem = f"is also the name of the Silo in document {seen[name].number}"
            yield document.fault("metadata.name", name, problem, "rename one: names are unique in a job")
        seen.setdefault(name, document)


def _selected_silos(job: FederatedJob, silos: Mapping[str, Silo]) -> list[Silo]:
    if (selector := job.spec.silos.selector) is None:
        return [silos[str(ref)] for ref in job.spec.silos.refs if str(ref) in silos]
    matching = [
        silo for silo in silos.values() if selector.match_labels.items() <= silo.metadata.labels.items()
    ]
    return sorted(matching, key=lambda silo: (silo.metadata.namespace, silo.metadata.name))


def _silo_named(document: Document) -> Iterator[str]:
    metadata = document.content.get("metadata")
    if document.kind == "Silo" and isinstance(metadata, dict):
        yield f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"


def _silo_faults(
    where: Document, job: FederatedJob, chosen: Sequence[Silo], named: set[str]
) -> Iterator[Fault]:
    """What the job says of silos and datasets that the rest of the file does not keep."""
    spec = job.spec
    for position, ref in enumerate(spec.silos.refs):
        if str(ref) not in named:
            problem, remedy = "has no Silo document in this file", _silo_remedy(ref, named)
            yield where.fault(f"spec.silos.refs[{position}]", str(ref), problem, remedy)
    if spec.silos.selector and not chosen:
        labels = dict(spec.silos.selector.match_labels)
        yield where.fault(
            "spec.silos.selector.matchLabels", labels, "matches no Silo of this file", "label the Silos"
        )
    for silo in chosen:
        if silo.dataset(spec.data.dataset) is None:
            offered = ", ".join(dataset.name for dataset in silo.spec.datasets)
            problem, remedy = (
                f"is not a dataset of Silo {silo}",
                f"add it there, or use one that it has: {offered}",
            )
            yield where.fault("spec.data.dataset", spec.data.dataset, problem, remedy)
    for finding in quorum_findings(job, len(spec.silos.refs) or len(chosen)):
        yield where.fault(*finding)


def _silo_remedy(ref: ObjectRef, named: set[str]) -> str:
    same_name = sorted(other for other in named if other.endswith(f"/{ref.name}"))
    return f"did you mean {same_name[0]}?" if same_name else "add the Silo or remove the reference"
