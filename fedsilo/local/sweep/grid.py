"""The grid of a sweep: every combination of the values that fields of a job take, each with every seed."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import yaml
from typing_extensions import override

from fedsilo.api.digest import canonical_digest, frozen_spec
from fedsilo.api.documents import Document
from fedsilo.api.faults import Fault, ManifestFaults, value_text
from fedsilo.api.json_yaml import JsonLoader
from fedsilo.api.loading import JobManifest
from fedsilo.errors import ManifestInvalid
from fedsilo.validation import varied_manifest

MAX_RUNS = 10_000
"""Most runs of a sweep: more than anybody waits for, and few enough for every manifest to be checked first."""

SEED = "spec.training.seed"

PARTITION_SEED = "partitionSeed"
"""Name in tables of the seed by which the silos' parts were drawn."""

_PART = re.compile(r"([A-Za-z0-9_-]+)|\[([0-9]{1,6})\]")


@dataclass(frozen=True)
class Setting:
    """A field of the job, and the values that it takes in turn.

    :param path: dotted, from `spec`, with [i] for list entries.
    """

    path: str
    values: tuple[Any, ...]

    @property
    def parts(self) -> list[str | int]:
        """Keys and list positions of the path."""
        return [key or int(position) for key, position in _PART.findall(self.path)]


@dataclass(frozen=True)
class GridPoint:
    """One run of the grid.

    :param values: path -> value, of the fields that the sweep sets.
    :param seed: `spec.training.seed`.
    :param partition_seed: of the silos' parts of the job's dataset, where the sweep sets that; None where it does not.
    """

    values: Mapping[str, Any]
    seed: int
    manifest: JobManifest
    partition_seed: int | None = None

    @property
    def combination(self) -> str:
        """The values as one key, by which runs that differ in their seeds alone belong together."""
        return json.dumps(self.values, sort_keys=True)

    @property
    def seeds(self) -> dict[str, int]:
        """The run's seeds by the names that tables have for them."""
        partition = {} if self.partition_seed is None else {PARTITION_SEED: self.partition_seed}
        return {"seed": self.seed, **partition}

    @override
    def __str__(self) -> str:
        """What sets the run apart: `batchSize=16, seed 1, partitionSeed 2`."""
        return ", ".join([describe(self.values), *(f"{name} {seed}" for name, seed in self.seeds.items())])

    @property
    def digest(self) -> str:
        """SHA-256 of all that the run follows from: the job and its silos."""
        silos = [silo.model_dump(mode="json", by_alias=True) for silo in self.manifest.silos]
        return canonical_digest({"job": frozen_spec(self.manifest.job), "silos": silos})


def parse_setting(text: str) -> Setting:
    """`spec.training.batchSize=16,32` as a setting; values are written as in YAML, within a list.

    :raises ManifestInvalid: naming what cannot be read.
    """
    path, equals, values = text.partition("=")
    if not equals:
        raise ManifestInvalid(f"--set {value_text(text)}: has no '='; write FIELD=VALUE,VALUE")
    try:
        found = yaml.load(f"[{values}]", Loader=JsonLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        found = None
    if not isinstance(found, list):
        remedy = (
            "write values as in YAML, with commas between them, and those with commas or brackets in quotes"
        )
        raise ManifestInvalid(f"--set {path}: {value_text(values)}: cannot be read; {remedy}")
    return Setting(path, tuple(found))


def grid(
    manifest: JobManifest, settings: Sequence[Setting], seeds: int, partition_seeds: int = 1
) -> list[GridPoint]:
    """Every combination in the order in which the values are given, the last setting changing first, and then every
    seed.

    :param seeds: values of `spec.training.seed` with each combination, from the manifest's own on.
    :param partition_seeds: values of the seed of the silos' partitions with each of these, from the manifest's own on.
    :raises ManifestInvalid: naming setting, value and remedy; also where a run's manifest would not be valid.
    """
    _require_settings(settings)
    _require_number("seeds", seeds, "give the runs of each value")
    _require_number("partition seeds", partition_seeds, "give the partitions of each value")
    parted = _partition_seed(manifest) if partition_seeds > 1 else None
    runs = seeds * partition_seeds
    for setting in settings:
        runs *= len(setting.values)
    if runs > MAX_RUNS:
        raise ManifestInvalid(
            f"the grid has {runs:,} runs; give fewer values or seeds, for at most {MAX_RUNS:,}"
        )
    first = manifest.job.spec.training.seed
    points = []
    for values in itertools.product(*(setting.values for setting in settings)):
        for further, seed in itertools.product(range(partition_seeds), range(first, first + seeds)):
            varied = manifest if parted is None else _with_partition_seeds(manifest, further)
            point = _point(varied, settings, values, seed)
            points.append(point if parted is None else replace(point, partition_seed=parted + further))
    _require_difference(points)
    return points


def _require_number(what: str, number: object, remedy: str) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ManifestInvalid(f"{what}: {value_text(number)}: is not a number from 1; {remedy}")


def _partition_seed(manifest: JobManifest) -> int:
    """The seed by which the silos' parts of the job's dataset are drawn.

    :raises ManifestInvalid: they are no parts of a partition, or of several.
    """
    name = manifest.job.spec.data.dataset
    datasets = (dataset for silo in manifest.silos for dataset in silo.spec.datasets if dataset.name == name)
    seeds = {None if dataset.partition is None else dataset.partition.seed for dataset in datasets}
    if len(seeds) == 1 and (seed := seeds.pop()) is not None:
        return seed
    found = (
        "there are parts by several seeds"
        if None not in seeds and seeds
        else "not all silos hold a part of one"
    )
    remedy = "give each silo's dataset a partition with one seed, or leave it out"
    raise ManifestInvalid(f"--partition-seeds: dataset {value_text(name)}: {found}; {remedy}")


def _with_partition_seeds(manifest: JobManifest, further: int) -> JobManifest:
    """The manifest in which the seeds of all partitions are so many higher.

    Those of the aggregator's datasets too: another part of the silos' partition has no example in common with theirs.
    """
    documents = [deepcopy(document) for document in manifest.documents]
    for document in documents:
        spec = document.content["spec"]
        holder = spec.get("aggregator") or {} if document.kind == "FederatedJob" else spec
        for dataset in holder.get("datasets") or ():
            if partition := dataset.get("partition"):
                dataset["partition"] = {**partition, "seed": partition.get("seed", 0) + further}
    return replace(manifest, documents=tuple(documents))


def _require_settings(settings: Sequence[Setting]) -> None:
    seen: set[str] = set()
    for setting in settings:
        if not re.fullmatch(rf"spec(\.?{_PART.pattern})+", setting.path):
            remedy = "write a field of the job from spec on, such as spec.training.optimizer.learningRate"
            raise ManifestInvalid(f"--set {value_text(setting.path)}: is no field of a job; {remedy}")
        if setting.path == SEED:
            raise ManifestInvalid(
                f"--set {SEED}: is what --seeds is for; use --seeds N, from the manifest's on"
            )
        if setting.path in seen:
            raise ManifestInvalid(f"--set {setting.path}: is given twice; write all of its values in one")
        if not setting.values:
            raise ManifestInvalid(f"--set {setting.path}: has no value; write FIELD=VALUE,VALUE")
        seen.add(setting.path)


def _require_difference(points: Sequence[GridPoint]) -> None:
    """Refuse two runs of one and the same job: a value that is given twice, or a field that is set in two ways."""
    seen: dict[str, GridPoint] = {}
    for point in points:
        same = seen.setdefault(point.digest, point)
        if same is not point:
            raise ManifestInvalid(
                f"{describe(point.values)}: is the same job as {describe(same.values)}; leave one of them out"
            )


def _point(manifest: JobManifest, settings: Sequence[Setting], values: Sequence[Any], seed: int) -> GridPoint:
    chosen = list(zip(settings, values, strict=True))
    documents = [
        _with_settings(document, [*chosen, (Setting(SEED, (seed,)), seed)])
        if document.kind == "FederatedJob"
        else document
        for document in manifest.documents
    ]
    try:
        federation = varied_manifest(manifest, documents)
    except ManifestFaults as error:
        raise ManifestFaults(_attributed_fault(fault, settings) for fault in error.faults) from None
    return GridPoint({setting.path: value for setting, value in chosen}, seed, federation)


def _attributed_fault(fault: Fault, settings: Sequence[Setting]) -> Fault:
    """A fault of a value that the file does not hold, as one of `--set`."""
    ours = any(re.match(rf"{re.escape(setting.path)}($|[.\[])", fault.path) for setting in settings)
    return replace(fault, file="--set", document="") if ours else fault


def _with_settings(document: Document, chosen: Sequence[tuple[Setting, Any]]) -> Document:
    content = deepcopy(document.content)
    for setting, value in chosen:
        _put(content, setting, deepcopy(value))
    return Document(document.file, document.number, content)


def _put(content: dict[str, Any], setting: Setting, value: Any) -> None:
    """Set a field, making the mappings that lead to it where there are none."""
    place: Any = content
    *way, last = setting.parts
    for part in way:
        _require_place(place, part, setting)
        if isinstance(part, str) and place.get(part) is None:
            place[part] = {}
        place = place[part]
    _require_place(place, last, setting)
    place[last] = value


def _require_place(place: Any, part: str | int, setting: Setting) -> None:
    if isinstance(part, int) and not (isinstance(place, list) and part < len(place)):
        problem = f"[{part}]: the manifest has no such list entry; write one that is there"
    elif isinstance(part, str) and not isinstance(place, dict):
        problem = (
            f"{part}: is below {value_text(place)}, which is no mapping; write a field that can be there"
        )
    else:
        return
    raise ManifestInvalid(f"--set {setting.path}: {problem}")


def describe(values: Mapping[str, Any]) -> str:
    """What sets a run apart, as `learningRate=0.1, batchSize=16`; `the manifest as it is` where nothing does."""
    names = short_names(list(values))
    parts = [f"{names[path]}={setting_text(value)}" for path, value in values.items()]
    return ", ".join(parts) or "the manifest as it is"


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Path -> its last part, or as many as tell it apart from the other paths."""
    names: dict[str, str] = {}
    for path in paths:
        parts = path.split(".")
        ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        names[path] = next(
            end for end in ends if sum(f".{other}".endswith(f".{end}") for other in paths) == 1
        )
    return names


def setting_text(value: Any) -> str:
    """A value as it would stand in a manifest, text without quotes."""
    return value if isinstance(value, str) else value_text(value)


def grid_digest(points: Sequence[GridPoint]) -> str:
    """SHA-256 of all runs' digests in their order: what a directory of a sweep belongs to."""
    return hashlib.sha256("".join(point.digest for point in points).encode()).hexdigest()
