"""`fedsilo validate` asks a method and transforms of other packages for all that a run asks of their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from fedsilo.cli.main import main
from fedsilo.local import job_model
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import ServerHalf, SiloStep
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import Scalar
from fedsilo.methods.step import Payload, Step
from fedsilo.wire import ModelSignature
from tests.unit.api.bad_manifests import Edit
from tests.unit.api.manifests import edited_manifest
from tests.unit.transforms.offered import offer

JOB = "fedsilo: job.yaml: document 5 (FederatedJob digits): spec."
MEND = "; mend or remove the package that offers it"
POLICY = "policy: {payloadKinds: [model], "


class GoodMethod(FedAvg):
    """Says all that a run asks."""


class Failing(FedAvg):
    """Fails where its silo half is asked for."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        raise AttributeError("'MethodConfig' object has no attribute 'pull'")


class OtherStep(FedAvg):
    """Has a function for another step than its phases ask for."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        return {"tran": super().silo()["train"]}


class NoMapping(FedAvg):
    """Has a function in place of a mapping."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        return super().silo()["train"]  # type: ignore[return-value]


class NoServer(FedAvg):
    """Has no server half."""

    @override
    def server(self) -> ServerHalf[Mean]:
        return None  # type: ignore[return-value]


class NoKind(FedAvg):
    """Sends what no policy could permit."""

    @override
    def steps(self) -> Mapping[str, Step]:
        return {"train": Step((Payload("gradients"),))}


class NoDimension(FedAvg):
    """Sends a block of a size that nobody knows."""

    @override
    def steps(self) -> Mapping[str, Step]:
        return {"train": Step((Payload("model"), Payload("class_counts", "n", ("groups",))))}


class OfSettings(FedAvg):
    """Sends a block of a size that follows from a task."""

    @override
    def dimensions(self, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Mapping[str, int]:
        return {"groups": int(settings["groups"])}


class WithoutTorch(FedAvg):
    """Imports torch where there is none."""

    @override
    def silo(self) -> Mapping[str, SiloStep]:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = dict(registry._entry_points())
    for each in (
        GoodMethod,
        Failing,
        OtherStep,
        NoMapping,
        NoServer,
        NoKind,
        NoDimension,
        OfSettings,
        WithoutTorch,
    ):
        known[each.__name__] = EntryPoint(each.__name__, f"{__name__}:{each.__name__}", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: known)
    offer(monkeypatch)


def run_validate(capsys: pytest.CaptureFixture[str], *edits: Edit) -> tuple[int, str, str]:
    Path("job.yaml").write_text(edited_manifest(*edits))
    allowed = ["--allow-import", __name__, "--allow-import", "tests.unit.transforms.offered"]
    code = main(["validate", "-f", "job.yaml", *allowed])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def of_method(name: str) -> Edit:
    return ("name: fedavg", f"name: {name}")


def with_transforms(*names: str) -> list[Edit]:
    """Permitted by all silos."""
    listed = ", ".join(names)
    north = '- {name: digits, loader: "sklearn:digits", config: {split: train}}\n'
    return [
        (
            "  training:\n",
            f"  transforms: [{', '.join(f'{{name: {name}}}' for name in names)}]\n  training:\n",
        ),
        (POLICY, f"{POLICY}transforms: [{listed}], "),
        (north, f"{north}  policy: {{transforms: [{listed}]}}\n"),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Failing",
            "the declaration of method fedavg failed: AttributeError: 'MethodConfig' object has no attribute 'pull'",
        ),
        ("OtherStep", "silo of method fedavg returned no function for step 'train', which its phases ask for, but for "
            "tran; add it"),
        ("NoMapping", "silo of method fedavg returned a PlainTraining; return a function for each step by its name"),
        ("NoServer", "server of method fedavg returned a NoneType, which has no start; return the server half, with "
            "start, assign, aggregate, model"),
        ("NoKind", "payload: kind is 'gradients'; use one of "),
        ("NoDimension", "the declaration of method fedavg failed: KeyError: 'groups'"),
    ],
)  # fmt: skip
def test_what_a_methods_declaration_gets_wrong_is_a_fault(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    code, out, err = run_validate(capsys, of_method(name))
    assert (code, out) == (2, "")
    assert err.startswith(f'{JOB}method.name: "{name}": cannot be used: {said}')
    assert err.endswith(f"{MEND}\n")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["misshapen"], "transform misshapen: sends failed: tensor encoder.0.weight: dtype is float8; use "),
        (
            ["halves", "damped"],
            "spec.transforms: damped: is after halves, which leaves no tensor of the model as it is",
        ),
    ],
    ids=["sends", "order"],
)
def test_what_transforms_get_wrong_is_a_fault(
    capsys: pytest.CaptureFixture[str], names: list[str], said: str
) -> None:
    code, out, err = run_validate(capsys, *with_transforms(*names))
    assert (code, out) == (2, "")
    assert err.startswith(f"{JOB}transforms: ") and f": cannot be used: {said}" in err


@pytest.mark.parametrize(
    "edits", [[of_method("GoodMethod")], with_transforms("damped", "halves")], ids=["method", "both"]
)
def test_what_is_said_is_valid(capsys: pytest.CaptureFixture[str], edits: list[Edit]) -> None:
    code, out, err = run_validate(capsys, *edits)
    assert (code, err) == (0, "")
    assert "job.yaml: valid" in out and "  sends   not" not in out


def test_what_cannot_be_asked_here_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def underived_reason(*edits: Edit) -> str:
        code, out, _ = run_validate(capsys, *edits)
        assert code == 0
        (line,) = [
            line for line in out.splitlines() if line.startswith("  sends   not derived from the model: ")
        ]
        return line.partition("model: ")[2]

    assert underived_reason(of_method("OfSettings")).startswith(
        "a dimension follows from 'groups' of the settings"
    )
    assert (
        underived_reason(of_method("WithoutTorch"))
        == "method fedavg imports torch, which is not installed here"
    )
    monkeypatch.setattr(job_model, "find_spec", lambda _name: None)
    assert underived_reason(of_method("GoodMethod")) == "the model of the job cannot be built here"
    assert underived_reason(*with_transforms("misshapen")) == "the model of the job cannot be built here"


def test_a_built_in_method_is_not_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_on_import(*_: Any) -> Any:
        raise AssertionError("it would import torch")

    monkeypatch.setattr(FedAvg, "silo", fail_on_import)
    assert run_validate(capsys)[0] == 0
