"""Which proxy leads out of an institution: `HTTPS_PROXY` and `NO_PROXY`, as curl and Go read them.

The standard library and aiohttp know no networks in `NO_PROXY`, which every Kubernetes has there, and requests takes
`example.com` for the end of `notexample.com`.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes, urlsplit

from fedsilo.errors import ManifestInvalid

_FORM = (
    "write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, with every character of user and password that is "
    "neither letter nor digit as %XX"
)


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that opens connections to others (CONNECT).

    :param url: without user and password.
    :param variable: of the environment that names it.
    :param authorization: value of `Proxy-Authorization`; None without user.
    """

    url: str
    variable: str
    authorization: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Its host and port."""
        return urlsplit(self.url).netloc


def proxy_for(host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy through which a server is reached; None where it is reached directly.

    :raises ManifestInvalid: naming the variable, and not its value, which may contain a password.
    """
    variable = next((name for name in ("https_proxy", "HTTPS_PROXY") if environment.get(name)), None)
    if variable is None or is_exempt(host, port, environment):
        return None
    value = environment[variable].strip()
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        address, proxy_port = parts.hostname, parts.port
    except ValueError:
        raise ManifestInvalid(f"{variable}: is no address of a proxy; {_FORM}") from None
    if parts.scheme not in ("http", "https"):
        raise ManifestInvalid(f"{variable}: proxies of type {parts.scheme} are not supported; {_FORM}")
    if not address or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ManifestInvalid(f"{variable}: is no address of a proxy; {_FORM}")
    authorization = None
    if parts.username is not None:
        login = unquote_to_bytes(parts.username) + b":" + unquote_to_bytes(parts.password or "")
        authorization = "Basic " + base64.b64encode(login).decode()
    shown = f"[{address}]" if ":" in address else address
    default = 443 if parts.scheme == "https" else 80
    return Proxy(f"{parts.scheme}://{shown}:{proxy_port or default}", variable, authorization)


def is_exempt(host: str, port: int, environment: Mapping[str, str]) -> bool:
    """Whether a server is reached without a proxy: this machine's loopback, and what `NO_PROXY` lists.

    A name there stands for itself and all names below it; an address or network for addresses, never for names that
    have one; `:PORT` limits an entry to a port; `*` is everything.
    """
    host = host.rstrip(".").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    listed = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return any(_covers(entry, host, address, port) for entry in re.split(r"[,\s]+", listed.lower()) if entry)


def _covers(entry: str, host: str, address: _Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only = _split_port(entry)
    if only is not None and only != port:
        return False
    named = _address(name)
    if named is not None or address is not None:
        return named == address
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"\[(.*)\](?::([0-9]{1,5}))?|([^:]*):([0-9]{1,5})", entry)
    if found is None:
        return entry, None
    port = found[2] or found[4]
    return (found[1] if found[1] is not None else found[3]), int(port) if port else None


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
