"""A service takes a renewed certificate without a restart, and never one that does not fit its key."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo.wire import Authority, issue_server, make_authority
from fedsilo_operator import certificate
from fedsilo_operator.certificate import renew_certificate, served_tls


def write(folder: Path, authority: Authority, *names: str) -> None:
    pair = dict(zip(("tls.crt", "tls.key"), issue_server(authority, ["127.0.0.1"]), strict=True))
    for name in names or pair:
        (folder / name).write_bytes(pair[name])


async def shakes_hands(port: int, authority: Authority) -> bool:
    trusted = ssl.create_default_context(cadata=authority.cert_pem.decode())
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
    except ssl.SSLError:
        return False
    writer.close()
    return True


async def test_new_connections_get_the_renewed_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificate, "CERTIFICATE_POLL_SECONDS", 0.001)
    caplog.set_level(logging.INFO, logger="fedsilo")
    before, after = make_authority(), make_authority()
    write(tmp_path, before)
    context = served_tls(tmp_path)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    renewing = asyncio.ensure_future(renew_certificate(context, tmp_path))
    try:
        assert await shakes_hands(port, before)
        write(tmp_path, after, "tls.crt")
        while "stays as it is" not in caplog.text:
            await asyncio.sleep(0.001)
        assert await shakes_hands(port, before), "half of a renewal took the certificate away"
        write(tmp_path, after)
        while "newer certificate is in use" not in caplog.text:
            await asyncio.sleep(0.001)
        assert await shakes_hands(port, after)
        assert not await shakes_hands(port, before)
    finally:
        renewing.cancel()
        server.close()


def test_a_folder_without_a_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match=r"tls.crt and tls.key cannot be used"):
        served_tls(tmp_path)
