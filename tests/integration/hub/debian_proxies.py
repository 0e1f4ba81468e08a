"""The forward proxies that institutions run: squid and tinyproxy, as Debian packages them, with and without logins."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from tests.ports import free_port

SYSTEM_PATHS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"
SQUID_LOGINS = Path("/usr/lib/squid/basic_ncsa_auth")
USER = "hospital"
SQUID_PASSWORD, SQUID_DIGEST = "a b@c/d%e", "$apr1$fedsilo0$xfj3v213VW5ZzAVQWbv48."
"""A password, and its digest as `openssl passwd -apr1` gives it."""

TINYPROXY_PASSWORD = "letters123"
"""Its configuration takes letters and digits."""


def find_program(program: str) -> str | None:
    """Where the program is; None where it is not installed."""
    return shutil.which(program, path=SYSTEM_PATHS)


@asynccontextmanager
async def squid(*, login: bool, permitted_port: int) -> AsyncIterator[int]:
    """Run squid as a forward proxy; yields its port.

    :param permitted_port: the only one that it connects to.
    """
    port = free_port()
    # Started as root, it works as another user, who cannot enter the folders of a test.
    with TemporaryDirectory(prefix="fedsilo-squid-") as name:
        folder = Path(name)
        _configure_squid(folder, port, login, permitted_port)
        async with _running(port, "squid", "-N", "-f", str(folder / "squid.conf")):
            yield port


def _configure_squid(folder: Path, port: int, login: bool, permitted_port: int) -> None:
    (folder / "logins").write_text(f"{USER}:{SQUID_DIGEST}\n")
    rules = [
        f"http_port 127.0.0.1:{port}",
        f"acl hub port {permitted_port}",
        "http_access deny !hub",
        *_squid_logins(folder, login),
        "http_access allow all",
        "cache deny all",
        "access_log none",
        f"cache_log {folder}/cache.log",
        f"pid_filename {folder}/pid",
        f"coredump_dir {folder}",
        "pinger_enable off",
        "shutdown_lifetime 0 seconds",
    ]
    (folder / "squid.conf").write_text("\n".join(rules) + "\n")
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "proxy")


def _squid_logins(folder: Path, login: bool) -> list[str]:
    if not login:
        return []
    return [
        f"auth_param basic program {SQUID_LOGINS} {folder}/logins",
        "auth_param basic children 1",
        "auth_param basic realm institution",
        "acl known proxy_auth REQUIRED",
        "http_access deny !known",
    ]


@asynccontextmanager
async def tinyproxy(*, login: bool, permitted_port: int) -> AsyncIterator[int]:
    """Run tinyproxy as a forward proxy; yields its port."""
    port = free_port()
    rules = [
        f"Port {port}",
        "Listen 127.0.0.1",
        "Timeout 60",
        f"ConnectPort {permitted_port}",
        "Allow 127.0.0.1",
    ]
    if login:
        rules.append(f"BasicAuth {USER} {TINYPROXY_PASSWORD}")
    with NamedTemporaryFile("w", prefix="fedsilo-tinyproxy-") as file:
        file.write("\n".join(rules) + "\n")
        file.flush()
        async with _running(port, "tinyproxy", "-d", "-c", file.name):
            yield port


@asynccontextmanager
async def _running(port: int, program: str, *arguments: str) -> AsyncIterator[None]:
    path = find_program(program)
    assert path is not None
    process = await asyncio.create_subprocess_exec(
        path, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        while True:
            assert process.returncode is None, f"{program} ended with {process.returncode}"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            break
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
