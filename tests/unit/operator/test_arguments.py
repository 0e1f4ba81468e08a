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


def test_a_priority_class_for_the_pods_of_jobs_is_optional() -> None:
    assert _arguments([*IMAGES, "--job-priority-class=fedsilo-jobs"]).job_priority_class == "fedsilo-jobs"
    assert _arguments(IMAGES).job_priority_class is None


def test_by_default_nobody_may_ask() -> None:
    assert _arguments(IMAGES).metrics_from is None


@pytest.mark.parametrize("text", ["", "a", "=b", "a=b,", "a=b,c"])
def test_what_is_no_label_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ManifestInvalid, match="is not of the form label=value,label=value"):
        _arguments([*IMAGES, f"--metrics-from={text}"])


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ([], (443, 6443)),
        (["--api-server-ports=16443"], (16443,)),
        (["--api-server-ports=443, 8443"], (443, 8443)),
    ],
)
def test_ports_of_the_api_server(given: list[str], ports: tuple[int, ...]) -> None:
    assert _arguments([*IMAGES, *given]).api_server_ports == ports


@pytest.mark.parametrize("given", ["", "443;6443", "0", "65536", "https", "443,"])
def test_what_is_no_port_is_named(given: str) -> None:
    with pytest.raises((SystemExit, ManifestInvalid), match="is no port; give numbers from 1 to 65535"):
        _arguments([*IMAGES, f"--api-server-ports={given}"])
