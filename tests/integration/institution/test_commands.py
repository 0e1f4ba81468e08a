"""The commands of an institution without Kubernetes, against a real gateway; no job runs here."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fedsilo.api.observed import status_of
from fedsilo.silo.decision import read_decision
from fedsilo.silo.offer import read_offer
from fedsilo_operator.objects import SILO_KIND
from tests.integration.institution.hub import NORTH, Consortium
from tests.integration.service.site import wait_until


async def test_a_person_of_the_institution_decides(consortium: Consortium) -> None:
    async with consortium.gateway():
        await consortium.join()
        consortium.offer({"manualApproval": True})
        directory = str(consortium.directory.root)
        with consortium.serving():
            consortium.propose()
            pending = await consortium.wait_reported("ApprovalPending")
            name = consortium.agent.name
            assert f"fedsilo silo approve --dir DIR {name}" in pending["message"]
            listed = await consortium.command("approve", "--dir", directory)
            assert name in listed.stdout
            asked = await consortium.command("approve", name, "--dir", directory)
            assert (asked.returncode, "add --yes to decide" in asked.stderr) == (2, True)
            done = await consortium.command("approve", name, "--dir", directory, "--yes", "--note", "agreed")
            assert (done.returncode, "has approved job federation/attacked" in done.stdout) == (
                0,
                True,
            ), done.stderr
            assert "installed/fedsilo" in done.stdout
            admitted = await consortium.wait_reported("Admitted")
            decision = read_decision(admitted["decision"], public_key(consortium))
            assert decision.decision == "Admitted"
            assert decision.decided_by is not None
            again = await consortium.command("approve", name, "--dir", directory, "--yes")
            assert "has approved it already" in again.stdout

            refused = await consortium.command("refuse", name, "--dir", directory, "--yes")
            assert refused.returncode == 0, refused.stderr
            status = await consortium.wait_reported("Refused")
            assert read_decision(status["decision"], public_key(consortium)).decision == "Refused"


async def test_a_policy_that_refuses_starts_nothing_whatever_the_hub_asks_for(consortium: Consortium) -> None:
    async with consortium.gateway():
        await consortium.join()
        consortium.offer({"methods": ["fedprox"]})
        with consortium.serving():
            consortium.propose()
            refused = await consortium.wait_reported("Refused")
            assert "fedavg" in refused["message"]
            consortium.suspend(False)
            await wait_until_heard(consortium, suspended=False)
            assert consortium.status()["phase"] == "Refused"
            found = await overview(consortium)
            assert found["serving"]["processes"] == {}
            assert not list(consortium.directory.logs.iterdir())

            # What is not understood has no effect, and is said; what is corrected counts at once.
            before = consortium.directory.silo_file.read_text()
            consortium.directory.silo_file.write_text(before.replace("datasets", "dtasets"))
            await asyncio.to_thread(wait_until, lambda: "dtasets" in serving(consortium)["fault"], "a fault")
            assert consortium.status()["phase"] == "Refused"
            consortium.suspend(True)
            consortium.offer()
            await consortium.wait_reported("Admitted")
            assert serving(consortium)["fault"] == ""


@pytest.mark.thorough
async def test_a_hub_that_is_gone_is_said_with_since_when_and_why(consortium: Consortium) -> None:
    async with consortium.gateway():
        await consortium.join()
        consortium.offer()
        with consortium.serving():
            await asyncio.to_thread(wait_until, lambda: reached(consortium) is True, "contact")
    async with AsyncExitStack() as gateways:  # which end after whoever might be connecting to them
        with consortium.serving():
            await asyncio.to_thread(wait_until, lambda: reached(consortium) is False, "no contact")
            said = (await consortium.command("status", "--dir", str(consortium.directory.root))).stdout
            assert "the hub is not reached since 20" in said
            assert f"127.0.0.1:{consortium.port}" in said
            await gateways.enter_async_context(consortium.gateway())
            await asyncio.to_thread(wait_until, lambda: reached(consortium) is True, "contact")


@pytest.mark.thorough
async def test_every_bad_invitation_is_one_clear_line(consortium: Consortium) -> None:
    directory = str(consortium.directory.root)
    async with consortium.gateway():
        path = consortium.invite()
        text = path.read_text()
        path.write_text(text.replace("silo-north/north", "silo-north/nooth"))
        await expect_refusal(consortium, 2, "checksum: does not fit the rest of the file")
        path.write_text("nothing\n")
        await expect_refusal(consortium, 2, "is no invitation")
        consortium.invite("late", days=-1)
        await expect_refusal(consortium, 8, "invitation-expired")
        consortium.invite("other")
        path.write_text(text)
        await expect_refusal(consortium, 8, "invitation-invalid")
        consortium.invite()
        key = consortium.directory.key_file.read_bytes()
        assert consortium.directory.key_file.stat().st_mode & 0o777 == 0o600
        first = await consortium.command("join", str(path), "--dir", directory)
        assert first.returncode == 0, first.stderr
        # As after a crash before anything was recorded.
        (consortium.directory.private_directory / "hub.json").unlink()
        again = await consortium.command("join", str(path), "--dir", directory)
        assert first.stdout.splitlines()[:2] == again.stdout.splitlines()[:2]
        assert consortium.directory.key_file.read_bytes() == key
        other = await consortium.command("join", str(path), "--dir", str(consortium.root / "second"))
        assert (other.returncode, "invitation-used" in other.stderr) == (8, True)
        assert len(other.stderr.splitlines()) == 1
        # A directory stays that of one hub and silo.
        foreign = Consortium(consortium.root / "foreign")
        foreign.root.mkdir()
        elsewhere = await consortium.command("join", str(foreign.invite()), "--dir", directory)
        assert (elsewhere.returncode, "name another directory" in elsewhere.stderr) == (6, True)
    unreached = await consortium.command("join", str(path), "--dir", str(consortium.root / "third"))
    assert (unreached.returncode, len(unreached.stderr.splitlines())) == (10, 1)


async def expect_refusal(consortium: Consortium, code: int, text: str) -> None:
    directory = str(consortium.directory.root)
    done = await consortium.command("join", str(consortium.root / "invitation.yaml"), "--dir", directory)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert text in done.stderr


@pytest.mark.thorough
async def test_one_process_serves_a_directory(consortium: Consortium) -> None:
    async with consortium.gateway():
        await consortium.join()
        consortium.offer()
        with consortium.serving() as process:
            await asyncio.to_thread(
                wait_until, lambda: reached(consortium) is not None, "a process that serves"
            )
            second = await consortium.command("serve", "--dir", str(consortium.directory.root))
            assert (
                second.returncode,
                f"process {process.pid} serves this silo already" in second.stderr,
            ) == (
                6,
                True,
            )
    consortium.directory.silo_file.unlink()
    missing = await consortium.command("serve", "--dir", str(consortium.directory.root))
    assert (missing.returncode, "silo.yaml" in missing.stderr) == (2, True)
    consortium.directory.key_file.chmod(0o644)
    open_key = await consortium.command("serve", "--dir", str(consortium.directory.root))
    assert (open_key.returncode, "chmod 600" in open_key.stderr) == (6, True)


@pytest.mark.thorough
async def test_a_key_is_rotated_and_a_silo_leaves_and_comes_back(consortium: Consortium) -> None:
    directory = str(consortium.directory.root)
    async with consortium.gateway():
        await consortium.join()
        consortium.offer()
        first = public_key(consortium)
        with consortium.serving():
            await asyncio.to_thread(wait_until, lambda: offered_by(consortium, first), "an offer")
        done = await consortium.command("rotate-key", "--dir", directory)
        assert done.returncode == 0, done.stderr
        second = public_key(consortium)
        assert second != first
        assert consortium.directory.signing_key().verify_key.fingerprint in done.stdout
        assert len(list((consortium.directory.private_directory / "retired").iterdir())) == 1
        with consortium.serving():
            await asyncio.to_thread(
                wait_until, lambda: offered_by(consortium, second), "an offer by the new key"
            )

        left = await consortium.command("leave", "--dir", directory, "--yes")
        assert left.returncode == 0, left.stderr
        over = await consortium.command("serve", "--dir", directory)
        assert (over.returncode, "has left the hub" in over.stderr) == (2, True)
        back = await consortium.command("join", str(consortium.invite("again")), "--dir", directory)
        assert back.returncode == 0, back.stderr
        consortium.accept()
        with consortium.serving():
            await asyncio.to_thread(wait_until, lambda: reached(consortium) is True, "contact")


def offered_by(consortium: Consortium, key: str) -> bool:
    offer = status_of(consortium.cluster.peek(SILO_KIND, NORTH)).get("offer")
    return offer is not None and offer["publicKey"] == key and bool(read_offer(offer, str(NORTH), key))


def public_key(consortium: Consortium) -> str:
    return consortium.directory.signing_key().verify_key.to_text()


def serving(consortium: Consortium) -> Any:
    return json.loads(consortium.directory.serving.read_text())


def reached(consortium: Consortium) -> bool | None:
    """What the process that serves now says of the hub; None before it has said anything."""
    if not consortium.directory.serving.exists():
        return None
    said = serving(consortium)
    if not alive(said["pid"]) or said["hub"] is None:
        return None
    return bool(said["hub"]["reached"])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def wait_until_heard(consortium: Consortium, suspended: bool) -> None:
    """Wait until the institution knows what the hub wants."""
    records = consortium.directory.agents

    def look() -> bool:
        found = [json.loads(path.read_text()) for path in records.glob("*/record.json")]
        return any(record["spec"].get("suspend") is suspended for record in found)

    await asyncio.to_thread(wait_until, look, "the institution to hear it")


async def overview(consortium: Consortium) -> Any:
    done = await consortium.command("status", "--dir", str(consortium.directory.root), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
