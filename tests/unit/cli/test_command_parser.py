"""Command lines that were mistyped, and the spelling of everything that help texts say."""

from __future__ import annotations

import re

import pytest

from fedsilo.cli.commands import COMMANDS
from fedsilo.cli.main import main
from fedsilo.cli.silo import QUESTIONS
from hack import reference

SPELLINGS = (
    *(
        "DNS",
        "TLS",
        "GPU",
        "GPUs",
        "CPU",
        "ONNX",
        "TorchScript",
        "PyTorch",
        "URL",
        "URLs",
        "SHA-256",
        "CSV",
        "JSON",
    ),
    *(
        "YAML",
        "HTTP",
        "HTTPS",
        "PEM",
        "SVG",
        "FedAvg",
        "Kubernetes",
        "MLflow",
        "TensorBoard",
        "DICOM",
        "PNG",
        "AUROC",
    ),
)
FIELD_VALUES = {"auroc", "csv"}
"""Words of the reference that are values of a field, with that field's spelling."""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("vaildate -f a.yaml", "vaildate: is no command; did you mean validate?"),
        ("silo recieipts", "recieipts: is no command; did you mean receipts?"),
        ("zzz", "zzz: is no command; use one of validate, check, run,"),
        ("run a.yaml", "a.yaml: is given without -f; write -f a.yaml"),
        ("run --json a.yml", "a.yml: is given without -f; write -f a.yml"),
        ("run -f a.yaml b.yaml", "b.yaml: is given without -f; write -f b.yaml"),
        ("sweep --workdir d --set x=1 a.yaml", "a.yaml: is given without -f; write -f a.yaml"),
        ("check -f a.yaml b.yaml", "unrecognized arguments: b.yaml"),
        ("check --file=a.yaml b.yaml", "unrecognized arguments: b.yaml"),
        ("run --wrokdir=d -f a.yaml", "--wrokdir: is no option; did you mean --workdir?"),
        ("silo receipts --jsn", "--jsn: is no option; did you mean --json?"),
        ("--vresion", "--vresion: is no option; did you mean --version?"),
    ],
)
def test_a_mistyped_line_is_told_what_was_meant(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert said in streams.err


@pytest.mark.parametrize(
    "arguments", [[], *([name] for name in COMMANDS), *(["silo", name] for name in QUESTIONS)], ids=" ".join
)
def test_help_spells_as_the_field_does(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--help"]) == 0
    assert misspelt(capsys.readouterr().out) == set()


def test_the_reference_spells_as_the_field_does() -> None:
    assert misspelt(re.sub(r"`[^`\n]*`", "", reference.tables())) <= FIELD_VALUES


def test_another_spelling_is_noticed() -> None:
    assert misspelt("Write as onnx or Torchscript, with --onnx.") == {"onnx", "Torchscript"}


def misspelt(text: str) -> set[str]:
    """Words that are written in other letters than their own; parts of options, names and paths are none."""
    words = "|".join(map(re.escape, SPELLINGS))
    found = re.findall(rf"(?<![\w.\-/\[{{,:])(?:{words})(?![\w\-/=:}}]|\.\w)", text, flags=re.IGNORECASE)
    return set(found) - set(SPELLINGS)
