"""Joining where something is wrong: one clear line with the remedy, and once that is done, the same key joins."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.silo_status import HubAddress
from fedsilo.api.timestamps import timestamp
from fedsilo.wire import SigningKey, make_authority
from fedsilo_operator.objects import SILO_KIND
from tests import warm
from tests.integration.hub.outside import HUB, ConnectProxy, Hub, saying, tls_of
from tests.integration.institution.hub import ENVIRONMENT, NORTH, PROGRAM, Consortium
from tests.integration.service.site import wait_until

SURROUNDINGS = {
    name: value for name, value in ENVIRONMENT.items() if name.upper() not in ("HTTPS_PROXY", "NO_PROXY")
}

AT_ANOTHER_TIME = """
import time
true = time.time
time.time = lambda: true() + {seconds}
"""


async def join(consortium: Consortium, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    invitation, directory = consortium.root / "invitation.yaml", consortium.directory.root
    arguments, given = ["join", str(invitation), "--dir", str(directory)], {**SURROUNDINGS, **environment}
    return await asyncio.to_thread(warm.run, PROGRAM, ["silo", *arguments], env=given)


async def expect_refusal(
    consortium: Consortium, environment: Mapping[str, str], code: int, *said: str
) -> None:
    """The command ends with that code and one line; the key that it has made stays."""
    key = consortium.directory.key_file
    before = key.read_bytes() if key.exists() else None
    done = await join(consortium, environment)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done.stderr
    assert all(text in done.stderr for text in said), done.stderr
    assert f"the key is kept in {key}: once that is done, run the same command again" in done.stderr
    assert "secret" not in done.stderr
    assert key.exists()
    assert before in (None, key.read_bytes())


async def expect_join(consortium: Consortium, environment: Mapping[str, str]) -> None:
    """Check that the join command succeeds, with the key that an earlier attempt has made."""
    key = consortium.directory.key_file.read_bytes()
    done = await join(consortium, environment)
    assert done.returncode == 0, done.stderr
    assert consortium.directory.key_file.read_bytes() == key


def invite_by_name(consortium: Consortium) -> None:
    """The hub under a name that only the institution's proxy knows."""
    token = "once"
    consortium.invite(token)
    address = HubAddress(
        url=f"https://{HUB}:{consortium.port}",
        ca_certificate=consortium.authority.cert_pem.decode(),
        key=consortium.identity.verify_key.to_text(),
    )
    expires = Time(timestamp(datetime.now(UTC) + timedelta(days=7)))
    invitation = SiloInvitation.of(address, str(NORTH), token, expires)
    (consortium.root / "invitation.yaml").write_text(invitation.to_yaml())


@pytest.mark.thorough
async def test_a_proxy_that_demands_a_login_and_looks_into_tls(
    consortium: Consortium, tmp_path: Path
) -> None:
    own, trusted = make_authority(), tmp_path / "institution.pem"
    trusted.write_bytes(own.cert_pem)
    looking = tls_of(tmp_path / "proxy", own, [HUB])
    proxy = ConnectProxy(login="hospital:a secret", inspects=looking, name="127.0.0.1")
    async with consortium.gateway(), proxy.serving(consortium.authority):
        invite_by_name(consortium)

        def proxy_environment(login: str) -> dict[str, str]:
            return {"HTTPS_PROXY": f"http://{login}127.0.0.1:{proxy.port}", "SSL_CERT_FILE": ""}

        await expect_refusal(
            consortium,
            proxy_environment(""),
            10,
            "demands a login (407)",
            "HTTPS_PROXY=http://USER:PASSWORD@",
        )
        await expect_refusal(
            consortium, proxy_environment("hospital:secret@"), 10, "does not take the login", "as %XX"
        )
        right = proxy_environment("hospital:a%20secret@")
        await expect_refusal(
            consortium, right, 10, "looks into TLS, put the institution's own authority", "SSL_CERT_FILE"
        )
        await expect_join(consortium, right | {"SSL_CERT_FILE": str(trusted)})
    assert set(proxy.asked) == {f"{HUB}:{consortium.port}"}


async def test_a_hub_that_answers_with_a_web_page(consortium: Consortium, tmp_path: Path) -> None:
    consortium.invite()
    page = saying(text="<html>Log in</html>", content_type="text/html", headers={"Server": "portal"})
    tls = tls_of(tmp_path / "portal", consortium.authority, ["127.0.0.1"])
    async with Hub(tmp_path).serving(page, tls, consortium.port):
        await expect_refusal(
            consortium, {}, 10, "status 200 with a web page by portal", "whether this network demands a login"
        )
    async with consortium.gateway():
        await expect_join(consortium, {})


@pytest.mark.thorough
async def test_a_certificate_that_does_not_fit(consortium: Consortium, tmp_path: Path) -> None:
    consortium.invite()

    async def silence(_: web.Request) -> web.Response:
        raise AssertionError("nothing is said to a stranger")

    stranger = tls_of(tmp_path / "stranger", make_authority(), ["127.0.0.1"])
    async with Hub(tmp_path).serving(silence, stranger, consortium.port):
        await expect_refusal(
            consortium, {"SSL_CERT_FILE": ""}, 10, "is not the invitation's; if", "SSL_CERT_FILE"
        )
    other = tls_of(tmp_path / "other", consortium.authority, ["other.example"])
    async with Hub(tmp_path).serving(silence, other, consortium.port):
        await expect_refusal(
            consortium, {}, 10, "the certificate is for another name", "use the URL that the hub gave"
        )
    async with consortium.gateway():
        await expect_join(consortium, {})


@pytest.mark.thorough
@pytest.mark.parametrize(("minutes", "side"), [(20, "ahead of"), (-20, "behind")])
async def test_a_clock_that_is_off(consortium: Consortium, tmp_path: Path, minutes: int, side: str) -> None:
    path = tmp_path / "clock"
    path.mkdir()
    (path / "sitecustomize.py").write_text(AT_ANOTHER_TIME.format(seconds=60 * minutes))
    async with consortium.gateway():
        consortium.invite()
        off = {"PYTHONPATH": str(path)}
        await expect_refusal(consortium, off, 8, f"clock is 20 min {side} that of 127.0.0.1", "set it by NTP")
        await expect_join(consortium, {})


@pytest.mark.thorough
async def test_an_invitation_for_another_hub(consortium: Consortium) -> None:
    ours, consortium.identity = consortium.identity, SigningKey.generate()
    consortium.invite()
    consortium.identity = ours
    async with consortium.gateway():
        await expect_refusal(
            consortium, {}, 8, "the request is for another", "check which hub the invitation is from"
        )
        consortium.invite()
        await expect_join(consortium, {})


@pytest.mark.thorough
async def test_two_machines_join_as_one_silo(consortium: Consortium, tmp_path: Path) -> None:
    async with consortium.gateway():
        await consortium.join()
        second = Consortium(tmp_path / "second")
        second.root.mkdir()
        (second.root / "invitation.yaml").write_text((consortium.root / "invitation.yaml").read_text())
        await expect_refusal(second, {}, 8, "invitation-used", "tell the consortium's office")
        assert second.directory.membership() is None
        await expect_join(consortium, {})


@contextmanager
def small_disk(path: Path, size: str = "64k") -> Iterator[None]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that there is; what has taken it."""
    data = disk / "data"
    with data.open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(bytes(4096))
    return data


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
async def test_a_disk_that_is_full_while_the_silo_serves(consortium: Consortium) -> None:
    root = consortium.directory.root
    full = f"{root}: the disk is full; make room on it, and the silo goes on by itself"
    async with consortium.gateway():
        with small_disk(root, "1m"):
            await consortium.join()
            consortium.offer({"manualApproval": True})
            with consortium.serving() as process:

                def offered() -> bool:
                    return "offer" in consortium.cluster.peek(SILO_KIND, NORTH)["status"]

                await asyncio.to_thread(wait_until, offered, "the offer")
                data = fill(root)
                consortium.propose()
                await asyncio.to_thread(wait_until, lambda: full in consortium.log.read_text(), "the word")
                assert not consortium.status()
                assert process.poll() is None
                data.unlink()
                status = await consortium.wait_reported("ApprovalPending")
                assert status["decision"]["decision"] == "Refused"
                process.terminate()
                assert await asyncio.to_thread(process.wait) == 0
            said = consortium.log.read_text()
            assert (said.count("the disk is full"), said.count("there is room again")) == (1, 1)
            assert "Traceback" not in said


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
async def test_a_full_disk(consortium: Consortium) -> None:
    root = consortium.directory.root
    async with consortium.gateway():
        consortium.invite()
        with small_disk(root):
            data = fill(root)
            done = await join(consortium, {})
            assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
            assert re.search(r"fedsilo: /\S+: No space left on device; make", done.stderr), done.stderr
            assert "make room and repeat the command" in done.stderr
            data.unlink()
            again = await join(consortium, {})
            assert again.returncode == 0, again.stderr
