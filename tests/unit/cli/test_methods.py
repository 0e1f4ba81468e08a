"""`fedsilo methods` says what the declarations say, without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import Field
from typing_extensions import override

from fedsilo.cli.main import main
from fedsilo.cli.methods import OTHER_HEADING, REFERENCE, SUPPORTED_HEADING, describe
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import MethodConfig, Phase
from fedsilo.methods.method import Method
from fedsilo.methods.step import LOSS, Payload, Step


class StatisticsConfig(MethodConfig):
    """Two fields, one of them without a default."""

    virtual_per_class: int = Field(default=100, ge=1, description="Virtual features of a class.")
    rule: str | None = Field(default=None, description="How to pool.")


class Statistics(FedAvg):
    """A declaration with a per-class payload, a plain one, two phases and a configuration."""

    name = "statistics"
    title = "Class statistics"
    citation = "A. Author. A paper. 2024."
    Config = StatisticsConfig

    @override
    def steps(self) -> Mapping[str, Step]:
        statistics = (
            Payload("class_means", "mean", ("feature",), per_class=True),
            Payload("averaged_gradients", "gradient", ("classes", "feature"), "float64"),
        )
        return {"train": Step((Payload("model"),), (LOSS,)), "describe": Step(statistics)}

    @override
    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("train", self.spec.training.rounds - 1, "train"),
            Phase("statistics", 1, "describe", everyone=True),
        )


class Demanding(Statistics):
    """A configuration without a default."""

    class Config(MethodConfig):
        """A configuration with one required field."""

        clusters: int = Field(ge=2, description="Groups of silos.")


def words(text: str) -> str:
    """Text without its alignment by spaces."""
    return re.sub(r" +", " ", text)


def listed_methods(text: str) -> dict[str, list[str]]:
    """Heading of each table of the list -> its lines, the first of which is the head."""
    parts = text.rstrip("\n").split("\n\n")
    return {heading: table.splitlines() for heading, table in zip(parts[::2], parts[1::2], strict=True)}


def test_the_list_names_every_method_once_in_its_tier_and_what_it_sends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["methods"]) == 0
    tables = listed_methods(capsys.readouterr().out)
    assert list(tables) == [SUPPORTED_HEADING, REFERENCE], "no package offers another"
    found = {tier: [line.split()[0] for line in lines[1:]] for tier, lines in tables.items()}
    supported = [name for name in registry.names() if registry.get(name).use_when is not None]
    assert found == {
        SUPPORTED_HEADING: supported,
        REFERENCE: [n for n in registry.names() if n not in supported],
    }
    assert f"fedavg {FedAvg.use_when} model a mean over silos" in map(words, tables[SUPPORTED_HEADING])
    assert "fedavgm Federated averaging with server momentum model a mean over silos" in map(
        words, tables[REFERENCE]
    )


def test_a_description_names_the_tier() -> None:
    assert f"\nsupported: use it when {FedAvg.use_when}\n\n" in describe(FedAvg)
    assert "\nreference: as its paper has it, to compare with\n\n" in describe(registry.get("fedavgm"))
    for tier in ("supported", "reference"):
        assert f"\n{tier}: " not in describe(Statistics), "another package's, which does not say"


@pytest.mark.parametrize("says", [None, "a hospital has few beds"])
def test_a_method_of_another_package_is_in_neither_tier(
    says: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(FedAvg):
        """A method that does not inherit when FedAvg is of use."""

        name = title = "own"
        if says:
            use_when = says

    assert Own.use_when == says
    monkeypatch.setattr(registry, "names", lambda: ["fedavg", "own"])
    monkeypatch.setattr(registry, "get", {"fedavg": FedAvg, "own": Own}.__getitem__)
    monkeypatch.setattr(registry, "package_of", {"fedavg": None, "own": "hospital.own"}.__getitem__)
    assert main(["methods"]) == 0
    tables = listed_methods(capsys.readouterr().out)
    assert list(tables) == [SUPPORTED_HEADING, OTHER_HEADING]
    assert words(tables[OTHER_HEADING][1]) == "own own model a mean over silos"
    assert (f"\nsupported: use it when {says}\n\n" in describe(Own)) == (says is not None)


def test_a_method_that_does_not_load_is_listed_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_name: str) -> type[Method]:
        raise MethodError("its package is broken")

    monkeypatch.setattr(registry, "get", get)
    assert main(["methods"]) == 0
    assert "cannot be used: its package is broken" in capsys.readouterr().out


@pytest.mark.parametrize("name", registry.names())
def test_every_method_can_be_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", name]) == 0
    method, shown = registry.get(name), capsys.readouterr().out
    assert shown.startswith(f"{name}: {method.title}\n")
    for field, info in method.Config.model_fields.items():
        assert f"  {info.alias or field}: " in shown


def test_a_declaration_is_reported_in_full() -> None:
    shown = words(describe(Statistics))
    for told in (
        "statistics: Class statistics\n\nA. Author. A paper. 2024.\n",
        " train 9 rounds of step train the silos drawn\n",
        " statistics 1 round of step describe all silos\n",
        " train model every tensor of the model",
        "\n metrics loss one number each\n",
        " describe class_means mean/<class> feature float32 4 B x feature per class\n",
        " averaged_gradients gradient classes x feature float64 8 B x classes x feature\n",
        " evaluate metrics accuracy, loss, named_scores one number each\n",
        " classes: spec.data.classes\n",
        " counts per class of the silo's samples",
        "what the aggregator reads of that\n sums over silos, ",
        " at the aggregator the model\n in the silo nothing\n",
        " virtualPerClass: integer at least 1; default 100\n Virtual features of a class.\n",
        " rule: string or null; default null\n How to pool.",
    ):
        assert told in shown, f"{told!r} is not in\n{shown}"


@pytest.mark.parametrize("name", ["", "creff", "map"])
def test_the_output_is_that_of_the_golden_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by `fedsilo methods > methods.txt` and `fedsilo methods creff > methods-creff.txt`."""
    assert main(["methods", *name.split()]) == 0
    golden = Path(__file__).with_name("golden") / f"methods{name and '-'}{name}.txt"
    assert capsys.readouterr().out == golden.read_text()


def test_what_a_silo_discloses_of_its_classes_follows_from_the_kinds() -> None:
    said = {
        name: describe(registry.get(name))
        .split("what that reveals about a silo's classes\n")[1]
        .split("\n")[0]
        for name in ("fedavg", "fedconcat", "fedconcat-id", "ccvr", "creff")
    }
    assert {name: line.split()[0] for name, line in said.items()} == {
        "fedavg": "nothing;",
        "fedconcat": "counts",
        "fedconcat-id": "nothing;",
        "ccvr": "counts",
        "creff": "no",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fedavg", " a mean over silos, in which no silo's tensors need to be seen by themselves\n"),
        ("scaffold", " sums over silos, in which no silo's tensors need to be seen by themselves\n"),
        ("fedconcat", " each silo's update by itself\n\n"),
        ("ccvr", " each silo's update by itself\n with spec.aggregation.secure: sums over all silos only\n"),
        ("local", " figures only: there are no tensors\n"),
    ],
)
def test_what_the_aggregator_reads_is_told(name: str, told: str) -> None:
    assert f"what the aggregator reads of that\n{told}" in words(describe(registry.get(name)))


def test_a_configuration_without_defaults_is_no_obstacle() -> None:
    shown = words(describe(Demanding))
    assert " as the configuration says, which has no default\n" in shown
    assert " clusters: integer at least 2; required\n" in shown


def test_an_unknown_method_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "fedavgg"]) == 2
    assert "did you mean fedavg?" in capsys.readouterr().err


def test_neither_list_nor_description_imports_torch() -> None:
    code = (
        "import sys; from fedsilo.cli.main import main; from fedsilo.methods import registry\n"
        "assert not any(main(['methods', *name]) for name in [[], *([n] for n in registry.names())])\n"
        "print({'torch', 'sklearn', 'aiohttp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
