"""The models of the API's resources: defaults, scalars, digests, and that YAML and models say the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from fedsilo.api import FederatedJob, FederatedJobSpec, FederatedJobStatus, Silo, SiloAgent, spec_digest
from fedsilo.api.agent import SiloAgentSpec
from fedsilo.api.common import Fields
from fedsilo.api.differential_privacy import DifferentialPrivacySpec
from fedsilo.api.job import ParticipationSpec
from fedsilo.api.loading import ManifestFaults, load, load_document
from fedsilo.api.notations import Duration, Quantity
from fedsilo.api.silo import SiloSpec
from fedsilo.api.silo_policy import DEFAULT_KINDS
from fedsilo.payload_kinds import DESCRIPTIONS, KINDS, PayloadKind
from tests.unit.api.manifests import DIGITS, GOOD_MANIFESTS, edited_manifest

MINIMAL_SPEC: dict[str, Any] = {
    "method": {"name": "fedavg"},
    "model": {"name": "lenet"},
    "data": {"dataset": "digits", "classes": 10, "inputShape": [64]},
    "training": {"rounds": 1},
    "silos": {"selector": {"matchLabels": {"region": "sea"}}},
}
DESIGN = """
apiVersion: fedsilo.io/v1alpha1
kind: FederatedJob
metadata: {name: digits, namespace: federation}
spec:
  method:   {name: fedconcat, config: {clusters: 2, encoderRounds: 6, classifierRounds: 4}}
  model:    {name: "python:package.module:factory", config: {}}
  data:     {dataset: digits, classes: 10, inputShape: [1, 8, 8], validationFraction: 0.1}
  training: {rounds: 10, localEpochs: 2, batchSize: 32, seed: 1, threads: 1,
             optimizer: {name: sgd, learningRate: 0.05, momentum: 0.9, weightDecay: 0.00001},
             schedule: constant, warmupRounds: 0, gradientClip: null, minSteps: 1}
  aggregation: {weights: uniform}
  silos:    {refs: [{namespace: silo-north, name: north}, {namespace: silo-south, name: south},
                    {namespace: silo-west, name: west}]}
  participation: {fraction: 1.0, minSilos: 3, roundDeadline: 10m}
  evaluation:    {every: 1, testDataset: digits-test}
  privacy:  {minSamplesPerClass: 5}
  aggregator: {resources: {}, storage: {size: 10Gi}, image: "registry.example/aggregator:0.1.0",
               url: "https://digits.example:8443", datasets: [{name: digits-test, loader: "sklearn:digits"}]}
  agents:     {image: "registry.example/trainer:0.1.0"}
  suspend: false
  backoffLimit: 6
  ttlSecondsAfterFinished: 86400
"""
KEY = "ed25519:" + "A" * 43 + "="


def test_digits() -> None:
    federation = load(GOOD_MANIFESTS / "digits.yaml")
    spec = federation.job.spec
    assert [str(silo) for silo in federation.silos] == [
        "silo-west/west",
        "silo-north/north",
        "silo-south/south",
    ]
    assert spec.training.optimizer.weight_decay == 1e-5  # plain YAML 1.1 would make it a string
    assert spec.training.optimizer.momentum == 0.9
    assert spec.participation.round_deadline.seconds == 5400
    assert spec.aggregator.storage.size.value == 10 * 1024**3
    assert federation.silos[2].spec.agent.resources == {"limits": {"nvidia.com/gpu": "1"}}
    assert federation.silos[0].spec.policy.payload_kinds == ("model",)
    assert federation.silos[1].spec.policy.payload_kinds == DEFAULT_KINDS


def test_every_part_of_the_design(tmp_path: Path) -> None:
    path = tmp_path / "design.yaml"
    silo = "apiVersion: fedsilo.io/v1alpha1\nkind: Silo\nmetadata: {name: %s, namespace: silo-%s}\n"
    silo += "spec: {datasets: [{name: digits, loader: 'sklearn:digits'}]}\n---\n"
    path.write_text("".join(silo % (name, name) for name in ("north", "south", "west")) + DESIGN)
    federation = load(path)
    assert federation.job.spec.method.config == {"clusters": 2, "encoderRounds": 6, "classifierRounds": 4}
    assert federation.job.spec.aggregator.url == "https://digits.example:8443"
    assert federation.job.spec.ttl_seconds_after_finished == 86400


def test_selector_takes_matching_silos_in_order_of_namespace(tmp_path: Path) -> None:
    text = DIGITS[: DIGITS.index("    refs:")] + "    selector: {matchLabels: {region: sea}}\n"
    path = tmp_path / "selector.yaml"
    path.write_text(text + DIGITS[DIGITS.index("  participation:") :])
    assert [silo.metadata.name for silo in load(path).silos] == ["north", "west"]


def test_defaults() -> None:
    spec = FederatedJobSpec.model_validate(MINIMAL_SPEC)
    assert (spec.training.local_epochs, spec.training.batch_size, spec.training.seed) == (1, 32, 0)
    assert (spec.training.threads, spec.training.device, spec.training.precision) == (1, "auto", "float32")
    assert (spec.training.schedule, spec.training.decay, spec.training.min_steps) == ("constant", 1.0, 1)
    assert (spec.training.optimizer.learning_rate, spec.training.optimizer.weight_decay) == (0.01, 0.0)
    assert (spec.data.validation_fraction, spec.privacy.min_samples_per_class) == (0.1, 5)
    assert (spec.participation.fraction, spec.participation.min_silos) == (1.0, None)
    assert spec.participation.round_deadline == "10m"
    assert (spec.aggregation.weights, spec.evaluation.test_dataset, spec.suspend) == (None, None, False)
    assert (spec.backoff_limit, spec.ttl_seconds_after_finished) == (6, None)


def test_objects_as_an_api_server_gives_them() -> None:
    metadata = {
        "name": "digits", "namespace": "federation", "uid": "u", "generation": 3, "resourceVersion": "17",
        "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "kubectl"}],
        "finalizers": ["fedsilo.io/job"], "ownerReferences": [{"kind": "X"}],
    }  # fmt: skip
    job = FederatedJob.model_validate(
        {"metadata": metadata, "spec": MINIMAL_SPEC, "status": {"anything": [1]}}
    )
    assert job.metadata.uid == "u"
    silo = {"metadata": metadata, "spec": {"datasets": [{"name": "d", "loader": "npz"}]}}
    status = {"publicKey": KEY, "later": True}
    assert Silo.model_validate(silo | {"status": status}).status.public_key == KEY


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"datasets": []}, "is empty"),
        ({}, "is empty"),
        ({"remote": {}, "datasets": [{"name": "d", "loader": "npz"}]}, "is the institution's to list"),
        ({"remote": {"invitation": {"tokenDigest": "ab" * 32, "expires": "tomorrow"}}}, "expires"),
        ({"remote": {"publicKey": "abc"}}, "publicKey"),
    ],
)
def test_a_silo_lists_its_datasets_here_or_in_its_own_house(spec: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Silo.model_validate({"metadata": {"name": "north", "namespace": "silo-north"}, "spec": spec})


def test_a_remote_silo_needs_no_more_than_to_be_called_so() -> None:
    silo = Silo.model_validate({"metadata": {"name": "north"}, "spec": {"remote": {}}})
    assert silo.spec.remote is not None
    assert silo.spec.remote.public_key is None
    assert not silo.spec.remote.revoked


def test_silo_agent_carries_the_frozen_job() -> None:
    spec = FederatedJobSpec.model_validate(MINIMAL_SPEC)
    agent = SiloAgent.model_validate(
        {
            "metadata": {"name": "digits-north", "namespace": "silo-north"},
            "spec": {
                "job": {
                    "namespace": "federation", "name": "digits", "uid": "u",
                    "specDigest": spec_digest(spec), "spec": MINIMAL_SPEC,
                },
                "silo": {"namespace": "silo-north", "name": "north"},
                "trust": {
                    "url": "https://digits.federation:8443", "taskKey": KEY, "publicKey": KEY,
                    "caCertificate": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
                },
            },
        }
    )  # fmt: skip
    assert agent.spec.job.spec == spec


def test_status_model() -> None:
    status = FederatedJobStatus.model_validate(
        {"round": 7, "progress": "7/50", "silos": [{"name": "north", "phase": "Training", "lastRound": 6}]}
    )
    assert status.silos[0].last_round == 6


@pytest.mark.parametrize(("unit", "trainer"), [("example", True), ("person", True), ("silo", False)])
def test_the_trainer_adds_the_noise_of_what_is_less_than_a_silo(unit: str, trainer: bool) -> None:
    norm = {} if trainer else {"maxUpdateNorm": 1.0}
    private = DifferentialPrivacySpec.model_validate({"unit": unit, "epsilon": 1.0, "delta": 0.001} | norm)
    assert private.noised_by_trainer is trainer


def test_payload_kinds_are_those_of_the_wire() -> None:
    assert get_args(PayloadKind) == tuple(KINDS)
    assert set(DESCRIPTIONS) == set(KINDS)
    assert set(KINDS) - set(DEFAULT_KINDS) == {"class_covariances", "feature_statistics", "confusion"}


def test_models_are_frozen() -> None:
    spec = FederatedJobSpec.model_validate(MINIMAL_SPEC)
    with pytest.raises(ValidationError, match="frozen"):
        spec.suspend = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h0m1s", 7201), ("24h", 86400)]
)
def test_duration(text: str, seconds: int) -> None:
    duration = TypeAdapter(Duration).validate_python(text)
    assert (duration, duration.seconds) == (text, seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10m\n", "1.5h", "-1m", "10m1h", "0h0m", "1d", 10, None, ["1m"]]
)
def test_no_duration(text: object) -> None:
    with pytest.raises(ValidationError, match="not a duration"):
        TypeAdapter(Duration).validate_python(text)


@pytest.mark.parametrize(
    ("given_", "value"), [("10Gi", 10 << 30), ("1k", 1000), ("500m", 1), (2, 2), ("1.5Ki", 1536), ("0", 0)]
)
def test_quantity(given_: str | int, value: int) -> None:
    assert TypeAdapter(Quantity).validate_python(given_).value == value


@pytest.mark.parametrize("text", ["", "10GB", "-1", "1e3", "Gi", "1Gi\n", True, None, "9" * 40, 0.5, -1])
def test_no_quantity(text: object) -> None:
    with pytest.raises(ValidationError, match="not an amount"):
        TypeAdapter(Quantity).validate_python(text)


@pytest.mark.parametrize(
    ("fraction", "silos", "sampled"), [(1.0, 4, 4), (0.5, 3, 2), (0.7, 10, 7), (0.1, 30, 3), (0.01, 3, 1)]
)
def test_sampled_silos_are_the_decimal_fraction_rounded_up(fraction: float, silos: int, sampled: int) -> None:
    assert ParticipationSpec(fraction=fraction).sample_size(silos) == sampled


@pytest.mark.parametrize(("named", "asked", "needed"), [(None, 3, 3), (2, 3, 2), (3, 2, 2)])
def test_the_quorum_is_all_silos_that_are_asked_unless_the_job_names_fewer(
    named: int | None, asked: int, needed: int
) -> None:
    assert ParticipationSpec(min_silos=named).quorum(asked) == needed


names = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)
# PyYAML, which writes the file here, leaves some control characters unescaped, and text such as 0E0, which is a
# number to us, without quotes.
texts = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=10).map("a{}".format)
json_values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
configs = st.dictionaries(texts, json_values, max_size=4)
augmentations = st.fixed_dictionaries(
    {}, optional={"crop": st.integers(0, 7), "flip": st.booleans(), "rotation": st.floats(0, 180)}
)


@st.composite
def jobs(draw: st.DrawFn) -> FederatedJob:
    """Good jobs, of which every free value is arbitrary."""
    silos = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    spec = MINIMAL_SPEC | {
        "method": {"name": draw(names), "config": draw(configs)},
        "data": {"dataset": "images", "classes": 10, "inputShape": [1, 8, 8]},
        "training": {
            "rounds": draw(st.integers(1, 10_000)),
            "gradientClip": draw(st.none() | st.floats(1e-6, 1e6)),
            "augmentation": draw(st.none() | augmentations),
            "optimizer": {"learningRate": draw(st.floats(1e-9, 1e3)), "momentum": draw(st.floats(0, 0.999))},
        },
        "silos": {"refs": [{"namespace": draw(names), "name": name} for name in silos]},
        "participation": {"roundDeadline": f"{draw(st.integers(1, 99999))}s"},
        "suspend": draw(st.booleans()),
    }
    return FederatedJob.model_validate({"metadata": {"name": draw(names)}, "spec": spec})


@given(jobs())
@settings(max_examples=60)
def test_yaml_and_json_load_to_an_equal_job(
    tmp_path_factory: pytest.TempPathFactory, job: FederatedJob
) -> None:
    fields = job.model_dump(mode="json", by_alias=True)
    path = tmp_path_factory.getbasetemp() / "job.yaml"
    for text in (yaml.safe_dump(fields, allow_unicode=True), json.dumps(fields)):
        path.write_text(text)
        assert load_document(path, FederatedJob) == job


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_digest_ignores_key_order_and_what_may_change(job: FederatedJob, shuffle: random.Random) -> None:
    fields = _shuffled_keys(job.spec.model_dump(mode="json", by_alias=True), shuffle)
    fields |= {"suspend": not job.spec.suspend, "ttlSecondsAfterFinished": 5}
    assert spec_digest(FederatedJobSpec.model_validate(fields)) == spec_digest(job) == spec_digest(job.spec)


def _shuffled_keys(value: Any, shuffle: random.Random) -> Any:
    if not isinstance(value, dict):
        return value
    keys = list(value)
    shuffle.shuffle(keys)
    return {key: _shuffled_keys(value[key], shuffle) for key in keys}


def test_digest_is_of_the_meaning() -> None:
    plain = FederatedJobSpec.model_validate(MINIMAL_SPEC)
    spelt = FederatedJobSpec.model_validate(plain.model_dump(mode="json", by_alias=True))
    assert spec_digest(plain) == spec_digest(spelt)
    with_config = [
        MINIMAL_SPEC | {"method": {"name": "fedprox", "config": {"mu": mu}}} for mu in (1, 1.0, 1.5)
    ]
    one, also_one, other = (spec_digest(FederatedJobSpec.model_validate(fields)) for fields in with_config)
    assert one == also_one != other
    assert spec_digest(plain) != one


def test_an_api_server_that_drops_nulls_does_not_change_the_digest() -> None:
    given, dropped = (
        MINIMAL_SPEC | {"method": {"name": "fedavg", "config": config}} for config in ({"cap": None}, {})
    )
    assert spec_digest(FederatedJobSpec.model_validate(given)) == spec_digest(
        FederatedJobSpec.model_validate(dropped)
    )


def test_digest_is_this_one() -> None:
    """A change of this number breaks every running federation: silos compare it with what they admitted."""
    expected = "ab78ecdf36efefb7f1bf23a6393412c1d720113c939b2a5601d73b5e9442896b"
    assert spec_digest(FederatedJobSpec.model_validate(MINIMAL_SPEC)) == expected


def test_load_document_takes_exactly_one(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(DIGITS)
    with pytest.raises(ManifestFaults, match="holds 5 documents; give exactly one Silo"):
        load_document(path, Silo)
    path.write_text("kind: Silo\nmetadata: {name: a}\nspec: {dataset: []}\n")
    with pytest.raises(
        ManifestFaults, match=r"spec\.dataset: \[\]: is not a known field; did you mean datasets\?"
    ):
        load_document(path, Silo)


def test_edits_of_the_good_manifest_load(tmp_path: Path) -> None:
    path = tmp_path / "ok.yaml"
    path.write_text(
        "%YAML 1.1\n---\n---\n" + edited_manifest(("loader: sklearn:digits", "loader: &l sklearn:digits"))
    )
    assert len(load(path).silos) == 3


@pytest.mark.parametrize("model", [FederatedJobSpec, FederatedJobStatus, SiloSpec, SiloAgentSpec])
def test_every_list_string_and_mapping_is_bounded(model: type[BaseModel]) -> None:
    """An API server refuses rules over fields whose size it cannot bound."""
    bound = {"array": "maxItems", "string": "maxLength", "object": "maxProperties"}
    schema = model.model_json_schema()
    unbounded = [
        path
        for path, part in _parts(schema)
        if part.get("type") in bound
        and bound[part["type"]] not in part
        and not {"properties", "const", "enum", "pattern"} & set(part)
        and path[-1] != "items"  # a free-form entry of a list that is bounded itself
        and "propertyNames" not in path
    ]
    assert unbounded == []


def _parts(part: Any, *path: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(part, dict):
        if isinstance(part.get("type"), str):
            yield path, part
        for key, item in part.items():
            yield from _parts(item, *path, key)
    elif isinstance(part, list):
        for item in part:
            yield from _parts(item, *path)


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {model}.union(*(_models(child) for child in model.__subclasses__()))


def test_every_field_is_described() -> None:
    ours = [model for model in _models(Fields) if model.__module__.startswith("fedsilo.api.")]
    assert len(ours) > 30
    missing = [
        f"{m.__name__}.{name}"
        for m in ours
        for name, field in m.model_fields.items()
        if not field.description
    ]
    assert missing == []
