"""What every declaration must hold to, built in or not, and what the registry and the contract make of it."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import override

from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import EVALUATE, MethodConfig
from fedsilo.methods.method import Method, averaging_of
from fedsilo.methods.step import LOSS, NAMED_SCORES, Metric, Payload, Step
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import KINDS, ModelSignature, TensorSpec
from fedsilo.wire.contract import METRIC_RANGE
from tests.federate import bound_method, job_spec
from tests.unit.engine.synthetic import Diary

SIGNATURE = ModelSignature(
    (TensorSpec("encoder.weight", (5, 6), "float32"), TensorSpec("classifier.weight", (4, 5), "float32")),
    classes=4,
    feature=5,
)

EVERYTHING_WITHOUT_TORCH = """
import json, sys
from fedsilo.methods import registry
from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods.method import averaging_of
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature, TensorSpec

signature = ModelSignature((TensorSpec("classifier.weight", (4, 5), "float32"),), classes=4, feature=5)
document = json.loads(sys.argv[1])
for name in registry.names():
    declaration = registry.get(name)
    required = {f.alias: 1 for f in declaration.Config.model_fields.values() if f.is_required()}
    document["method"] = {"name": name, "config": required}
    method = registry.bind(FederatedJobSpec.model_validate(document))
    for step in JobPlan(method).steps:
        JobPlan(method).contract(step, signature, {}).digest()
    JobPlan(method).exchanges, method.check(), averaging_of(method), method.models
heavy = {"torch", "torchvision", "sklearn", "scipy", "aiohttp", "kubernetes"}
print(json.dumps([registry.names(), sorted(heavy & {module.partition(".")[0] for module in sys.modules})]))
"""


def test_declarations_and_contracts_need_neither_torch_nor_sklearn_nor_http() -> None:
    """Guard, command line and operator use them on machines that have none of these."""
    document = job_spec("fedavg", 2).model_dump_json(by_alias=True)
    ran = subprocess.run(
        [sys.executable, "-c", EVERYTHING_WITHOUT_TORCH, document],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout) == [registry.names(), []]


@pytest.mark.parametrize("name", registry.names())
def test_a_declaration_says_who_it_is_and_what_leaves_the_silo(name: str) -> None:
    declaration = registry.get(name)
    assert declaration.name == name
    assert declaration.title
    assert declaration.citation
    assert declaration.keeps.aggregator
    assert declaration.keeps.silo
    for field, info in declaration.Config.model_fields.items():
        assert re.search(r"\[[^]]+\]", info.description or ""), (
            f"{field}: say in brackets where its default is from"
        )
    required = {
        str(field.alias): 1 for field in declaration.Config.model_fields.values() if field.is_required()
    }
    method = bound_method(name, config=required)
    assert method.averaging.by_default(method.config) in ("samples", "uniform")
    assert averaging_of(method) == method.averaging.by_default(method.config)
    half = method.silo()
    for step, declared in method.steps().items():
        assert callable(half.get(step)), f"the silo half has no step {step}"
        assert {payload.kind for payload in declared.payloads} <= set(KINDS)


FOLDERS = [
    name for name in registry.names() if Path(inspect.getfile(registry.get(name))).name == "declaration.py"
]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_method_that_is_a_folder_has_the_same_files(name: str) -> None:
    """Settings, declaration and halves each have theirs; a half of another method is where that has it."""
    declaration = Path(inspect.getfile(registry.get(name)))
    assert (declaration.parent / "config.py").is_file()
    made = inspect.getmembers(sys.modules[registry.get(name).__module__], inspect.isclass)
    here = [found for _, found in made if found.__module__ == registry.get(name).__module__]
    assert all(issubclass(found, Method) for found in here)
    half = Path(inspect.getfile(type(bound_method(name).server())))
    assert half.name == "server.py" or half.parent != declaration.parent


class Statistics(Diary):
    """Payloads of every form."""

    @override
    def steps(self) -> Mapping[str, Step]:
        payloads = (
            Payload("model"),
            Payload("class_means", "means", ("feature",), "float64", per_class=True),
            Payload("averaged_gradients", "gradient", (2, "classes", "feature")),
        )
        return {"send": Step(payloads, (LOSS, Metric("accuracy")))}


def test_a_contract_lists_the_models_tensors_symbolic_shapes_and_one_block_per_class() -> None:
    contract = JobPlan(Statistics(job_spec("fedavg", 2), MethodConfig())).contract("send", SIGNATURE, {})
    assert [(b.kind, b.name, b.shape, b.dtype, b.label) for b in contract.blocks] == [
        ("model", "encoder.weight", (5, 6), "float32", None),
        ("model", "classifier.weight", (4, 5), "float32", None),
        *[("class_means", f"means/{label}", (5,), "float64", label) for label in range(4)],
        ("averaged_gradients", "gradient", (2, 4, 5), "float32", None),
    ]
    assert contract.metrics == ("accuracy", "loss")


def test_every_method_has_the_evaluation_and_no_step_that_it_does_not_declare() -> None:
    diary = Diary(job_spec("fedavg", 2), MethodConfig())
    assert JobPlan(diary).step(EVALUATE) == Step(
        metrics=(Metric("accuracy"), LOSS, Metric(NAMED_SCORES, (1.0, 1.0)))
    )
    with pytest.raises(
        MethodError,
        match=r"method diary declares no step 'steal'; the job has \['evaluate', 'read', 'write'\]",
    ):
        JobPlan(diary).step("steal")
    prepared = job_spec("fedavg", 2, data={"preprocessing": {"standardise": True}})
    with pytest.raises(MethodError, match=r"the job has \['evaluate', 'preprocessing', 'read', 'write'\]"):
        JobPlan(Diary(prepared, MethodConfig())).step("steal")


class Percentages(Diary):
    """An accuracy in percent, and a count."""

    @override
    def steps(self) -> Mapping[str, Step]:
        return {"send": Step((), (Metric("accuracy", (0.0, 100.0)), Metric("batches", (0.0, 1e6)), LOSS))}


def test_an_accuracy_is_from_0_to_1_and_every_figure_is_bounded_unless_its_step_says_otherwise() -> None:
    diary = Diary(job_spec("fedavg", 2), MethodConfig())
    assert JobPlan(diary).contract(EVALUATE, SIGNATURE, {}).ranges == {
        "accuracy": (0.0, 1.0),
        "loss": METRIC_RANGE,
        NAMED_SCORES: (1.0, 1.0),
    }
    other = JobPlan(Percentages(job_spec("fedavg", 2), MethodConfig())).contract("send", SIGNATURE, {})
    assert other.ranges == {"accuracy": (0.0, 100.0), "batches": (0.0, 1e6), "loss": METRIC_RANGE}


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, EntryPoint]]:
    """Further entry points, as installed packages would bring them."""
    found = dict(registry._entry_points())
    monkeypatch.setattr(registry, "_entry_points", lambda: found)
    yield found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "no_such_package:Third",
            "'third': entry point no_such_package:Third does not load: No module named",
        ),
        ("json:Third", "does not load: module 'json' has no attribute 'Third'"),
        ("json:dumps", "entry point json:dumps is a function, not a Method"),
        (
            "fedsilo.methods.method:Method",
            r"entry point fedsilo.methods.method:Method does not define phases, server, silo, steps$",
        ),
    ],
)
def test_an_entry_point_that_is_no_method_is_blamed_by_name(
    entry_points: dict[str, EntryPoint], value: str, message: str
) -> None:
    entry_points["third"] = EntryPoint("third", value, registry.GROUP)
    with pytest.raises(MethodError, match=message):
        registry.get("third")


class Lenient(FedAvg):
    """Would not notice a misspelt setting."""

    class Config(BaseModel):
        pull: float = 1.0


class SilentMethod(FedAvg):
    """Names no class of its settings."""

    Config = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "found"), [("Lenient", "Lenient.Config"), ("SilentMethod", "None")], ids=["lenient", "none"]
)
def test_settings_that_would_be_left_out_in_silence_are_refused(
    entry_points: dict[str, EntryPoint], name: str, found: str
) -> None:
    entry_points["third"] = EntryPoint("third", f"{__name__}:{name}", registry.GROUP)
    said = f"method third: Config of {name} is {found}; let it be a class that derives from MethodConfig, which refuses"
    with pytest.raises(MethodError, match=f"^{said}"):
        registry.bind(job_spec("third", 2, method={"config": {"pul": 2}}))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"name": "a b"}, "tensor 'a b': use 1 to 200 printable"),
        ({"name": "n", "dtype": "float8"}, "tensor n: dtype is float8; use float16, "),
        (
            {"name": "n", "shape": (-1, "classes")},
            r"tensor n: shape is \(-1, 1\); use at most 8 sizes from 0",
        ),
    ],
    ids=["name", "dtype", "shape"],
)
def test_a_payload_that_no_tensor_can_be_is_the_methods_error(payload: dict[str, Any], said: str) -> None:
    with pytest.raises(MethodError, match=f"^payload of kind model: {said}") as bad:
        Payload("model", **payload)
    assert bad.value.exit_code == 7


def test_an_unknown_method_is_refused_with_the_closest_name() -> None:
    with pytest.raises(
        ManifestInvalid, match=r"'fedavgg' is not known; did you mean fedavg\? known methods: .*fedavg"
    ):
        registry.get("fedavgg")


@pytest.mark.parametrize("config", [{"clients": 3}, {"learning_rate": 1}])
def test_a_configuration_that_the_method_does_not_know_is_refused(config: dict[str, Any]) -> None:
    spec = job_spec("fedavg", 2, method={"config": config})
    with pytest.raises(FedsiloError, match=next(iter(config))) as caught:
        registry.bind(spec)
    assert caught.value.exit_code == 2


def test_losses_of_whole_batches_are_computed_in_one_process() -> None:
    """A discrepancy of two shares of a batch is something else, and so are steps of each process by itself."""
    required = {"ccvr": {"after": {"name": "fedavg"}}}
    alone = {
        name
        for name in registry.names()
        if not bound_method(name, config=required.get(name)).training.data_parallel
    }
    assert alone == {"fedbr", "fedmmd", "feddecorr", "mixup", "fedmix", "vhl", "pfedme"}
    assert not bound_method("groupdro", config={"variant": "released"}).training.data_parallel
    for name in ("fedphp", "map", "scamap"):
        assert not bound_method(name, config={"transfer": "mmd"}).training.data_parallel
    assert not bound_method("fedproto", config={"variant": "map"}).training.data_parallel
    assert not bound_method("ccvr", config={"after": {"name": "fedbr"}}).training.data_parallel
