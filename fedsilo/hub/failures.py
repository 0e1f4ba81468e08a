"""Every way in which HTTPS to the outside fails, as one sentence with the remedy.

The remedies are for the people of the institution: they say whom to ask, and for what.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum

import aiohttp

from fedsilo.errors import FedsiloError
from fedsilo.hub.proxy import Proxy
from fedsilo.wire.problems import one_line
from fedsilo.wire.request import CLOCK_SKEW_SECONDS

MAX_QUOTED = 200
"""Characters of a stranger's text in a message."""

UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes (X509_V_ERR) for a certificate whose chain ends at no authority that counts here."""

NOT_YET_VALID, EXPIRED_CERTIFICATE, WRONG_NAME, WRONG_ADDRESS = 9, 10, 62, 64


class RequestStage(Enum):
    """How far a request has come."""

    PROXY = 1
    CONNECTION = 2
    TLS = 3
    ANSWER = 4


class Unreachable(FedsiloError):
    """No answer of a server outside, because of the network, a proxy or TLS; trying again may help."""

    exit_code = 10
    reason = "Unreachable"


def explain_failure(error: BaseException, address: str, proxy: Proxy | None, *, private: bool) -> str:
    """Why a request got no answer.

    :param address: host and port of the server.
    :param private: whether the server's certificate is to be by an authority of its own.
    """
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return _refused_by_proxy(error, address, proxy)
    tls = _tls_error(error)
    if tls is not None:
        return _tls_problem(tls, address, proxy, private)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _connection_problem(error, address, proxy)
    way = f" through {proxy.variable} {proxy.address}" if proxy else ""
    if isinstance(error, aiohttp.SocketTimeoutError):
        return f"{address}{way}: no byte for a long time; it is tried again, but look whether the connection is cut"
    if isinstance(error, TimeoutError):
        return f"{address}{way}: no connection in time; {_permit(address, proxy)}"
    if isinstance(error, aiohttp.InvalidURL):
        return f"{address}: is no address of a server; correct the URL"
    if isinstance(error, aiohttp.ClientResponseError):
        found = one_line(error.message)[:MAX_QUOTED]
        return f"{address}{way}: answers what is no HTTP ({found}); look whether the URL leads to fedsilo's server"
    found = one_line(str(error))[:MAX_QUOTED] or type(error).__name__
    return (
        f"{address}{way}: the connection broke ({found}); look whether a firewall or proxy cuts connections"
    )


def stage_of(error: BaseException | None, proxy: Proxy | None) -> RequestStage:
    """Where a request has failed."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return RequestStage.PROXY
    if error is not None and _tls_error(error) is not None:
        return RequestStage.TLS
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return RequestStage.PROXY if proxy else RequestStage.CONNECTION
    return RequestStage.ANSWER


def foreign_answer(status: int, headers: Mapping[str, str], address: str, proxy: Proxy | None) -> str | None:
    """Who has answered instead of fedsilo, as one sentence; None where nothing says that it was another.

    Load balancers, proxies, captive portals, and web servers under a wrong URL answer with pages for people; fedsilo
    never does to a silo.
    """
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in ("text/html", "application/xhtml+xml"):
        return None
    server = one_line(headers.get("Server", ""))[:MAX_QUOTED]
    found = (
        f"{address}: status {status} with a web page{f' by {server}' if server else ''} instead of an answer"
    )
    if status in (502, 503, 504):
        return f"{found}; ask the hub whether its gateway runs behind what answers there"
    if status == 413:
        return f"{found}; ask the hub to let larger bodies through what stands before its gateway"
    if proxy is not None:
        return f"{found}; compare the URL with the hub's, and ask whether the proxy {proxy.address} answers itself"
    return (
        f"{found}; compare the URL with the hub's, and look whether this network demands a login or a proxy"
    )


def clock_difference(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds by which this machine's clock is ahead of an answer's `Date`; None where that is missing or no date.

    :param now: Unix time here when the answer came.
    """
    try:
        return now - parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def clock_fault(headers: Mapping[str, str], address: str, now: float) -> str | None:
    """That this machine's clock differs too much from a server's, as one sentence; None where it does not."""
    difference = clock_difference(headers, now)
    if difference is None or abs(difference) <= CLOCK_SKEW_SECONDS:
        return None
    side = "ahead of" if difference > 0 else "behind"
    return (
        f"this machine's clock is {_duration(abs(difference))} {side} that of {address}, and {CLOCK_SKEW_SECONDS} s "
        "are permitted; set it by NTP (timedatectl set-ntp true), or ask the hub to, if its clock is the wrong one"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _refused_by_proxy(error: aiohttp.ClientHttpProxyError, address: str, proxy: Proxy | None) -> str:
    assert proxy is not None
    named = f"the proxy {proxy.address} ({proxy.variable})"
    if error.status in (401, 407):  # tinyproxy says 401 to a wrong login
        if proxy.authorization is None:
            return f"{named} demands a login ({error.status}); put it into {proxy.variable}=http://USER:PASSWORD@{proxy.address}"
        return (
            f"{named} does not take the login of {proxy.variable} ({error.status}); correct user and password, with "
            "every character that is neither letter nor digit as %XX"
        )
    if error.status in (403, 405):
        return f"{named} permits no connection to {address} ({error.status}); ask its owner to permit CONNECT to it"
    if error.status in (500, 502, 503, 504):
        return (
            f"{named} does not reach {address} ({error.status}); ask its owner whether it finds that name and may "
            "connect to it, and the hub whether its gateway runs"
        )
    told = one_line(error.message)[:MAX_QUOTED]
    return f"{named} answers {error.status} {told} to CONNECT {address}; look whether it is an HTTP proxy"


def _connection_problem(error: aiohttp.ClientConnectorError, address: str, proxy: Proxy | None) -> str:
    # What failed is the connection to the proxy, where there is one: the way on from there is the proxy's own.
    named = f"the proxy {proxy.address} ({proxy.variable})" if proxy else address
    why = error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(why, socket.gaierror):
        told = one_line(why.strerror or why)[:MAX_QUOTED]
        if proxy:
            return f"{named}: no address for its name ({told}); correct {proxy.variable}, or the name server's entry"
        return (
            f"{named}: no address for its name ({told}); correct the name or this machine's name server, or set "
            "HTTPS_PROXY if only a proxy leads outside"
        )
    if isinstance(why, ConnectionRefusedError):
        if proxy:
            return f"{named} refuses connections; look whether it runs, and correct {proxy.variable} if it is another"
        return f"{named} refuses connections; ask the hub whether its gateway runs there, and {_permit(address, proxy)}"
    told = one_line(why.strerror or str(why) or type(why).__name__)[:MAX_QUOTED]
    return f"{named}: no connection ({told}); {_permit(address, proxy)}"


def _permit(address: str, proxy: Proxy | None) -> str:
    if proxy:
        return f"look whether {proxy.variable} names the right proxy, and whether it permits CONNECT to {address}"
    return f"let the firewall permit TCP to {address}, or set HTTPS_PROXY if only a proxy leads outside"


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found: BaseException = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorSSLError):
        found = error.os_error
    else:
        found = error
    return found if isinstance(found, ssl.SSLError) else None


def _tls_problem(error: ssl.SSLError, address: str, proxy: Proxy | None, private: bool) -> str:
    begin = f"{address}: TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code in UNKNOWN_AUTHORITY:
            found = "is not the invitation's" if private else "is none of the system's"
            looks = f"the proxy {proxy.address}" if proxy else "a proxy or firewall"
            return (
                f"{begin}: the certificate is by an authority that {found}; if {looks} looks into TLS, put the "
                "institution's own authority into a file and name that in SSL_CERT_FILE, else ask the hub for its "
                "present authority"
            )
        if code in (WRONG_NAME, WRONG_ADDRESS):
            name_fault = f"the certificate is for another name ({_tls_error_text(error)})"
            return f"{begin}: {name_fault}; use the URL that the hub gave"
        if code in (EXPIRED_CERTIFICATE, NOT_YET_VALID):
            state = "has expired" if code == EXPIRED_CERTIFICATE else "is not valid yet"
            today = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            return (
                f"{begin}: the certificate {state}; here it is {today}: set this machine's clock if that is wrong, "
                "else ask the hub for a certificate that is valid"
            )
        return f"{begin}: the certificate does not hold ({_tls_error_text(error)}); send this line to the hub"
    return (
        f"{begin}: no agreement ({_tls_error_text(error)}); look whether the port speaks HTTPS with TLS 1.3, and "
        "whether a proxy or firewall breaks TLS"
    )


def _tls_error_text(error: ssl.SSLError) -> str:
    text = getattr(error, "verify_message", None) or error.reason or error.strerror or str(error)
    return one_line(text)[:MAX_QUOTED].rstrip(".")
