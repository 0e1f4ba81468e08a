"""The operator's command line."""

from __future__ import annotations

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.__main__ import _arguments

IMAGES = [f"--{role}-image={role}" for role in ("aggregator", "guard", "trainer")]


@pytest.mark.parametrize(
    ("text", "labels"),
    [("a=b", {"a": "b"}), ("x.y/a=b,c=", {"x.y/a": "b", "c": ""})],
)
def test_namespaces_are_named_by_their_labels(text: str, labels: dict[str, str]) -> None:
    assert _arguments([*IMAGES, f"--metrics-from={text}"]).metrics_from == labels


def test_by_default_nobody_may_ask() -> None:
    assert _arguments(IMAGES).metrics_from is None


@pytest.mark.parametrize("text", ["", "a", "=b", "a=b,", "a=b,c"])
def test_what_is_no_label_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ManifestInvalid, match="is not of the form label=value,label=value"):
        _arguments([*IMAGES, f"--metrics-from={text}"])
