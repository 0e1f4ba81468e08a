"""A Silo template stands for many silos of one description, each with a part of its own, for research on one machine.

It is a document of a file and no resource of a cluster: it stands for the Silos that are written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from fedsilo.api.common import MAX_SILOS
from fedsilo.api.documents import Document
from fedsilo.api.faults import ABSENT_VALUE, Fault

TEMPLATE = "SiloTemplate"


def silos_of(document: Document) -> tuple[list[Document], list[Fault]]:
    """The Silo documents of a template, in the order of their parts, and the faults that are the template's own.

    The fields of `spec` are those of a Silo, and `count`; a dataset's partition has neither `silos`, which is the
    count, nor `index`, which is the silo's place.
    """
    spec = document.content.get("spec")
    if not isinstance(spec, dict):
        return [document_of_silo(document, {}, 0, 1)], []  # whose faults say what is missing
    faults = [*_count_faults(document, spec), *_partition_faults(document, spec)]
    if faults:
        return [], faults
    count = spec["count"]
    return [document_of_silo(document, spec, index, count) for index in range(count)], []


def document_of_silo(document: Document, spec: dict[str, Any], index: int, count: int) -> Document:
    """The Silo of one part."""
    content = deepcopy(document.content) | {"kind": "Silo"}
    metadata = content.get("metadata")
    if isinstance(metadata, dict) and isinstance(name := metadata.get("name"), str):
        metadata["name"] = f"{name}-{index:0{len(str(count - 1))}}"
    if spec:
        own = {field: value for field, value in deepcopy(spec).items() if field != "count"}
        for dataset in _mappings(own.get("datasets")):
            if isinstance(dataset.get("partition"), dict):
                dataset["partition"] |= {"silos": count, "index": index}
        content["spec"] = own
    return Document(document.file, document.number, content)


def _count_faults(document: Document, spec: dict[str, Any]) -> Iterator[Fault]:
    count = spec.get("count", ABSENT_VALUE)
    if not isinstance(count, int) or isinstance(count, bool):
        problem = "is missing" if count is ABSENT_VALUE else "is not a whole number"
        yield document.fault("spec.count", count, problem, "give the number of silos")
    elif not 1 <= count <= MAX_SILOS:
        yield document.fault("spec.count", count, "is no possible number of silos", f"use 1 to {MAX_SILOS}")


def _partition_faults(document: Document, spec: dict[str, Any]) -> Iterator[Fault]:
    for position, dataset in enumerate(_mappings(spec.get("datasets"))):
        path = f"spec.datasets[{position}].partition"
        partition = dataset.get("partition", ABSENT_VALUE)
        if partition is ABSENT_VALUE or partition is None:
            problem = "is missing, so that every silo would hold the same examples"
            yield document.fault(path, ABSENT_VALUE, problem, "give its scheme, such as dirichlet")
        for field in ("silos", "index"):
            if isinstance(partition, dict) and field in partition:
                problem = "follows from the template's count"
                yield document.fault(f"{path}.{field}", partition[field], problem, "remove it")


def _mappings(items: Any) -> list[dict[str, Any]]:
    """The list, if it is one of mappings; what else it is the Silo's own check says."""
    return items if isinstance(items, list) and all(isinstance(item, dict) for item in items) else []
