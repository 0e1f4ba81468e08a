"""What a transform of another package may do, what it is not made for, and whose fault is what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsilo.api.agent import FrozenJob
from fedsilo.api.digest import frozen_spec, spec_digest
from fedsilo.api.faults import ManifestFaults
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.encodings.check import require_decodable
from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError, Problem
from fedsilo.methods import registry as methods
from fedsilo.silo import policy
from fedsilo.transforms.conflicts import check_job, require_consistent
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party import registry
from fedsilo.wire import Contract, ModelSignature, TensorSpec
from tests.federate import job_spec
from tests.unit.transforms.offered import OFFERED_TRANSFORMS, Halves, offer

Tree = dict[str, np.ndarray]

SIGNATURE = ModelSignature(
    (
        TensorSpec("encoder.weight", (5, 6), "float32"),
        TensorSpec("encoder.running_var", (5,), "float32"),
        TensorSpec("encoder.num_batches_tracked", (), "int64"),
        TensorSpec("classifier.weight", (4, 5), "float32"),
    ),
    classes=4,
    feature=5,
)


@pytest.fixture(autouse=True)
def offered_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)


def asking(
    *names: str | Mapping[str, Any], method: str = "fedavg", silos: int = 5, **sections: Any
) -> FederatedJobSpec:
    spec = frozen_spec(job_spec(method, silos, 2, **sections))
    given = [{"name": name} if isinstance(name, str) else dict(name) for name in names]
    return FederatedJobSpec.model_validate(spec | ({"transforms": given} if given else {}))


def contract_of(*names: str) -> Contract:
    return JobPlan.of(asking(*names)).contract("train", SIGNATURE, {})


def check_decodable(contract: Contract, blocks: Tree) -> None:
    require_decodable(
        contract,
        lambda name, first, count: blocks[name].reshape(-1)[first : first + count],
        lambda name: blocks[name].size,
    )


def as_sent(contract: Contract, value: float = 1.0) -> Tree:
    return {block.name: np.full(block.shape, value, block.dtype) for block in contract.blocks}


# --- Jobs without, and what is asked for.


def test_a_job_without_transforms_is_the_same_job_as_ever() -> None:
    spec = asking()
    assert "transforms" not in frozen_spec(spec)
    assert spec_digest(spec) == spec_digest(spec.model_copy(update={"transforms": None}))
    assert spec_digest(spec) != spec_digest(asking("halves"))
    assert not [each for each in JobPlan.of(spec).transforms if "Third" in type(each).__name__]
    assert contract_of().decoded is None


@pytest.mark.parametrize("names", [(), ("halves", "halves"), tuple(f"t{number}" for number in range(9))])
def test_a_list_has_one_to_eight_different_names(names: tuple[str, ...]) -> None:
    spec = frozen_spec(asking())
    with pytest.raises(ValidationError, match="transforms"):
        FederatedJobSpec.model_validate(spec | {"transforms": [{"name": name} for name in names]})


@pytest.mark.parametrize(
    ("asked", "where", "said"),
    [
        (
            "havles",
            "spec.transforms[0].name",
            "is not the name of a transform that is installed here; did you mean halves?",
        ),
        ("zzz", "spec.transforms[0].name", "installed are absent, damped, for-more, halves, keeping, "),
        ({"name": "halves", "config": {"size": 3}}, "spec.transforms[0].config.size", "is not a known field"),
        ("with-settings", "spec.transforms[0].config.size", "is missing"),
    ],
)
def test_what_a_manifest_can_mend_names_field_value_and_remedy(
    asked: str | Mapping[str, Any], where: str, said: str
) -> None:
    with pytest.raises(ManifestFaults) as refused:
        JobPlan.of(asking(asked))
    (fault,) = refused.value.faults
    assert fault.path == where
    assert said in fault.line()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("misnamed", "calls itself 'other'; both must be one name"),
        ("unfinished", "does not define decode, encode, sends"),
        ("no-transform", "is a GenericAlias, not a UpdateTransform"),
        ("absent", "does not load: "),
    ],
)
def test_what_an_author_must_mend_names_the_entry_point(name: str, said: str) -> None:
    with pytest.raises(MethodError, match=f"^transform '{name}': entry point tests.unit") as refused:
        JobPlan.of(asking(name))
    assert said in str(refused.value)


def test_names_that_no_manifest_can_have_are_none() -> None:
    assert registry.names() == sorted(OFFERED_TRANSFORMS)


# --- What it is not made for.

TEST_SET = {
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}

SILO = {"unit": "silo", "epsilon": 3, "delta": 0.01, "maxUpdateNorm": 1}

CONFLICTING_SECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "secure sums": ({"aggregation": {"secure": True}}, "secure aggregation adds models up as they are"),
    "encoded uploads": (
        {"communication": {"upload": {"encoding": "int8"}}},
        "one way to write these in fewer bytes",
    ),
    "noise of whole silos": (
        {"privacy": {"differentialPrivacy": SILO}, "aggregation": {"weights": "uniform"}, **TEST_SET},
        "to which the guard cannot add noise",
    ),
    "noise of training": (
        {"privacy": {"differentialPrivacy": {"unit": "example", "epsilon": 3, "delta": 0.001}}, **TEST_SET},
        "does not say that it adds nothing of the data",
    ),
    "a robust rule": (
        {"aggregation": {"rule": {"name": "median"}}},
        "does not say that models of single silos come of what it has sent",
    ),
}

DECLARED_CONFLICTS = {"noise of training", "a robust rule"}


@pytest.mark.parametrize("name", ["halves", "for-more"])
@pytest.mark.parametrize("beside", CONFLICTING_SECTIONS)
def test_what_it_is_not_made_for_is_refused(name: str, beside: str) -> None:
    sections, said = CONFLICTING_SECTIONS[beside]
    method = methods.bind(asking(name, **sections))
    found = [finding for finding in check_job(method) if finding[0] == "spec.transforms[0]"]
    if name == "for-more" and beside in DECLARED_CONFLICTS:
        assert found == []
        return
    ((_, value, problem, remedy),) = found
    assert value == name
    assert said in problem
    assert remedy.startswith("remove it, or remove spec.")
    # A guard does not rely on whoever has validated the job.
    with pytest.raises(ManifestInvalid, match=r"^spec\.transforms\[0\]: "):
        require_consistent(method)


def test_a_guard_without_the_package_lets_nothing_be_said() -> None:
    with pytest.raises(
        ManifestInvalid, match=r"spec\.transforms\[0\]\.name: \"nobodys\": is not the name of"
    ):
        require_consistent(methods.bind(asking("nobodys")))


# --- What an institution permits.


def silo(**rules: Any) -> Silo:
    content = {"datasets": [{"name": "data", "loader": "sklearn:digits"}], "policy": rules}
    return Silo.model_validate({"metadata": {"name": "north", "namespace": "silos"}, "spec": content})


def policy_objections(spec: FederatedJobSpec, **rules: Any) -> list[str]:
    job = FrozenJob(namespace="federation", name="job", uid="1", spec_digest=spec_digest(spec), spec=spec)
    return policy.objections(
        silo(minSamplesPerUpdate=1, **rules),
        job,
        policy.declared_egress(spec),
        datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_an_institution_names_the_transforms_that_run_and_by_default_none() -> None:
    spec = asking("halves", "damped")
    assert policy_objections(asking()) == []
    assert policy_objections(spec) == [
        "policy.transforms allows none, not halves, damped; ask the institution to allow it"
    ]
    assert policy_objections(spec, transforms=["halves"]) == [
        "policy.transforms allows halves, not damped; use one of these in spec.transforms, or ask the institution to "
        "allow it"
    ]
    assert policy_objections(spec, transforms=["damped", "halves"]) == []
    assert policy_objections(spec, methods=["fedavg"]) != []


def test_what_leaves_is_unknown_where_a_transform_is_not_installed() -> None:
    spec = asking("nobodys")
    assert policy.declared_egress(spec) is None
    assert policy.unknown_component(spec) == "transform nobodys"
    assert policy.unknown_component(asking("halves")) is None
    assert policy_objections(spec) == [
        "policy.transforms allows none, not nobodys; ask the institution to allow it"
    ]


# --- What is sent.


def test_only_tensors_that_may_lose_precision_are_replaced_and_in_their_place() -> None:
    contract, plain = contract_of("halves"), contract_of()
    assert [(block.name, block.dtype) for block in contract.blocks] == [
        ("encoder.weight", "float16"),
        ("classifier.weight", "float16"),
        ("encoder.running_var", "float32"),
        ("encoder.num_batches_tracked", "int64"),
    ]
    assert contract.tensors == plain.blocks
    assert contract.digest() != plain.digest()
    assert contract.max_bytes() == plain.max_bytes() - 2 * (30 + 20)


def test_transforms_that_follow_one_another_are_undone_in_reverse() -> None:
    contract = contract_of("damped", "halves")
    assert {block.dtype for block in contract.blocks if block.name.endswith("weight")} == {"float16"}
    check_decodable(contract, as_sent(contract))
    with pytest.raises(
        MethodError, match=r"^spec\.transforms: damped: is after halves, which leaves no tensor"
    ):
        contract_of("halves", "damped")


@pytest.mark.parametrize(("value", "code"), [(np.nan, "not-finite"), (np.inf, "not-finite")])
def test_what_gives_no_finite_model_is_refused_before_it_counts(value: float, code: str) -> None:
    contract = contract_of("halves")
    check_decodable(contract, as_sent(contract))
    with pytest.raises(Problem, match="transform halves makes NaN or infinity of what was sent") as refused:
        check_decodable(contract, as_sent(contract) | {"encoder.weight": np.full((5, 6), value, np.float16)})
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["sends", "decode"])
def test_code_of_a_package_that_fails_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise KeyError("x")

    contract = contract_of("halves")
    monkeypatch.setattr(Halves, name, failing)
    with pytest.raises(FedsiloError, match=f"transform halves: {name} failed: KeyError: 'x'"):
        check_decodable(contract, as_sent(contract)) if name == "decode" else contract_of("halves")


def test_what_cannot_be_sent_is_the_transforms_error_and_no_peers() -> None:
    with pytest.raises(
        MethodError, match=r"^transform misshapen: sends failed: tensor .* float8; use "
    ) as bad:
        contract_of("misshapen")
    assert bad.value.exit_code == 7


def test_settings_that_would_be_left_out_in_silence_are_refused() -> None:
    said = "^transform lenient: Config of Lenient is LenientConfig; let it be a class that derives from TransformConfig"
    with pytest.raises(MethodError, match=said):
        JobPlan.of(asking({"name": "lenient", "config": {"sice": 2}}))
