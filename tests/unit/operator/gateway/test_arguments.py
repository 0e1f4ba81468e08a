"""What a gateway is started with, by hand and by the chart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.gateway.__main__ import _arguments, main
from fedsilo_operator.gateway.limits import Limits
from tests.paths import ROOT

REQUIRED_ARGUMENTS = ["--url=https://hub.example", "--key=key.pem"]


def test_limits_are_those_that_the_page_names() -> None:
    args = _arguments(REQUIRED_ARGUMENTS)
    assert (args.max_open_requests, args.max_requests_per_second) == (32, 20)
    assert args.max_body_bytes == Limits().body_bytes == 64 << 30


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--url=http://hub.example", "--key=k"], "is no address"),
        (["--url=https://hub.example/", "--key=k"], "without a slash"),
        ([*REQUIRED_ARGUMENTS, "--max-open-requests=0"], "--max-open-requests: is not above zero"),
        (
            [*REQUIRED_ARGUMENTS, "--max-requests-per-second=-1"],
            "--max-requests-per-second: is not above zero",
        ),
        (["--url=https://hub.example"], "--key"),
    ],
)
def test_what_cannot_be_is_named(given: list[str], fault: str) -> None:
    with pytest.raises((SystemExit, ManifestInvalid), match=fault):
        _arguments(given)


def test_an_authority_that_is_no_text_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"\x30\x82\xff")
    assert main([*REQUIRED_ARGUMENTS, f"--ca={authority}"]) == ManifestInvalid.exit_code
    assert f"{authority}: is no text" in caplog.text


def test_the_chart_gives_arguments_that_there_are() -> None:
    template = (ROOT / "charts" / "fedsilo" / "templates" / "gateway.yaml").read_text()
    options = re.findall(r"^ +- (--[a-z-]+)=", template, re.MULTILINE)
    assert "--max-body-bytes" in options
    numbers = {"--max-open-requests", "--max-requests-per-second", "--max-body-bytes"}
    values = {"--url": "https://hub.example", "--log-format": "json"} | dict.fromkeys(numbers, "7")
    args = _arguments([f"{option}={values.get(option, 'file')}" for option in options])
    assert (args.max_open_requests, str(args.ca), str(args.tls)) == (7, "file", "file")


def test_the_chart_gives_rights_to_statuses_only() -> None:
    """The gateway faces the outside: whoever breaks into it may change no specification and read no Secret."""
    template = (ROOT / "charts" / "fedsilo" / "templates" / "gateway.yaml").read_text()
    rules = template.partition("rules:\n  - apiGroups")[2].partition("---")[0]
    found = re.findall(r"resources: \[(.*)\]\n +verbs: \[(.*)\]", rules)
    assert found == [
        ("silos, siloagents", "list, watch"),
        ("silos", "get"),
        ("silos/status, siloagents/status", "patch"),
    ]
    assert template.count("kind: ClusterRole\n") == 2, "the role, and the binding's reference to it"


def test_the_gateway_asks_the_api_server_for_no_more() -> None:
    """Whatever a later request needs has to be granted, and stated above."""
    code = "".join(path.read_text() for path in (ROOT / "operator/fedsilo_operator/gateway").glob("*.py"))
    calls = set(re.findall(r"cluster\.(get|list|watch|create|apply|delete|event)\(([A-Za-z_]*)", code))
    assert calls == {("get", "SILO_KIND"), ("apply", "wanted")}
