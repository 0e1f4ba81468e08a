"""Which servers are reached through which proxy: the variables as curl and Go read them."""

from __future__ import annotations

import base64

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo.hub.proxy import is_exempt, proxy_for


@pytest.mark.parametrize(
    ("listed", "host", "port", "exempt"),
    [
        ("", "hub.example", 443, False),
        ("*", "hub.example", 443, True),
        ("hub.example", "hub.example", 443, True),
        ("hub.example", "HUB.example.", 443, True),
        ("HUB.EXAMPLE", "hub.example", 443, True),
        ("example", "hub.example", 443, True),
        (".example", "hub.example", 443, True),
        (".hub.example", "hub.example", 443, True),
        ("*.example", "hub.example", 443, True),
        ("b.example", "hub.example", 443, False),
        ("other.example, hub.example", "hub.example", 443, True),
        ("other.example hub.example", "hub.example", 443, True),
        (",,", "hub.example", 443, False),
        (".", "hub.example", 443, False),
        ("hub.example:443", "hub.example", 443, True),
        ("hub.example:8443", "hub.example", 443, False),
        ("example:443", "hub.example", 443, True),
        (".svc,.cluster.local", "job-aggregator.silos.svc", 8443, True),
        ("10.0.0.0/8", "10.96.0.1", 443, True),
        ("10.0.0.0/8", "11.0.0.1", 443, False),
        ("10.1.2.3/8", "10.96.0.1", 443, True),
        ("10.0.0.0/99", "10.96.0.1", 443, False),
        ("10.0.0.0/8", "10.example", 443, False),
        ("0.0.0.0/0", "hub.example", 443, False),
        ("10.96.0.1", "10.96.0.1", 443, True),
        ("96.0.1", "10.96.0.1", 443, False),
        ("10.96.0.1:443", "10.96.0.1", 443, True),
        ("10.96.0.1:80", "10.96.0.1", 443, False),
        ("fd00::/8", "fd12::1", 443, True),
        ("fd00::/8", "10.0.0.1", 443, False),
        ("FD12:0:0::1", "fd12::1", 443, True),
        ("[fd12::1]:443", "fd12::1", 443, True),
        ("[fd12::1]:80", "fd12::1", 443, False),
        ("[fd12::1]", "fd12::1", 443, True),
        ("", "localhost", 443, True),
        ("", "127.0.0.5", 443, True),
        ("", "::1", 443, True),
        ("", "localhost.example", 443, False),
    ],
)
def test_no_proxy_lists_names_addresses_networks_and_ports(
    listed: str, host: str, port: int, exempt: bool
) -> None:
    assert is_exempt(host, port, {"NO_PROXY": listed}) is exempt


def test_small_letters_come_first_as_for_curl() -> None:
    environment = {
        "https_proxy": "http://a:1",
        "HTTPS_PROXY": "http://b:2",
        "no_proxy": "x",
        "NO_PROXY": "hub.example",
    }
    found = proxy_for("hub.example", 443, environment)
    assert found is not None
    assert (found.url, found.variable) == ("http://a:1", "https_proxy")


@pytest.mark.parametrize("environment", [{}, {"HTTPS_PROXY": ""}, {"HTTP_PROXY": "http://a:1"}])
def test_without_the_variable_there_is_no_proxy(environment: dict[str, str]) -> None:
    assert proxy_for("hub.example", 443, environment) is None


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("http://proxy.example:3128/", "http://proxy.example:3128"),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("http://proxy.example", "http://proxy.example:80"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("http://[fd12::1]:3128", "http://[fd12::1]:3128"),
        ("http://u:p@10.0.0.1:3128", "http://10.0.0.1:3128"),
    ],
)
def test_a_proxy_is_named_by_scheme_host_and_port(value: str, url: str) -> None:
    found = proxy_for("hub.example", 443, {"HTTPS_PROXY": value})
    assert found is not None
    assert found.url == url


@pytest.mark.parametrize(
    ("login", "plain"),
    [
        ("anna:secret", "anna:secret"),
        ("anna", "anna:"),
        ("a%40b:p%3A%2F%23%25", "a@b:p:/#%"),
        ("anna:%C3%BC", "anna:ü"),
    ],
)
def test_a_login_is_percent_decoded_into_utf_8_and_shown_nowhere(login: str, plain: str) -> None:
    found = proxy_for("hub.example", 443, {"HTTPS_PROXY": f"http://{login}@proxy.example:3128"})
    assert found is not None
    assert found.authorization == "Basic " + base64.b64encode(plain.encode()).decode()
    assert found.authorization not in repr(found)
    assert found.address == "proxy.example:3128"


@pytest.mark.parametrize(
    "value",
    [
        "http://anna:sec/ret@proxy.example:3128",
        "http://anna:sec#ret@proxy.example:3128",
        "http://anna:secret@proxy.example:threethousand",
        "http://anna:secret@",
        "http://anna:secret@proxy.example:3128/path",
        "socks5://anna:secret@proxy.example:1080",
        "http://[anna:secret@proxy.example",
    ],
)
def test_a_value_that_names_no_proxy_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ManifestInvalid, match=r"^HTTPS_PROXY: .*write http://HOST:PORT") as refused:
        proxy_for("hub.example", 443, {"HTTPS_PROXY": value})
    assert "anna" not in str(refused.value)
