"""`fedsilo silo doctor` on a machine without Kubernetes, with real causes of what fails."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedsilo.hub.doctor.finding import Finding, FindingState
from fedsilo.hub.doctor.storage import examine_storage
from fedsilo.institution import doctor
from fedsilo.institution.doctor import TRIAL
from tests import warm
from tests.integration.institution.hub import Consortium
from tests.namespaces import isolation_permitted

GOLDEN = Path(__file__).with_name("golden") / "doctor.txt"


def normalized_text(text: str, consortium: Consortium) -> str:
    """The output without what differs from run to run and from machine to machine."""
    key = consortium.directory.signing_key().verify_key.fingerprint
    for found, name in (
        (str(consortium.directory.root), "/srv/north"),
        (f"127.0.0.1:{consortium.port}", "127.0.0.1:8443"),
        (key, "FINGERPRINT"),
        (" or one of SSL_CERT_FILE", ""),
    ):
        text = text.replace(found, name)
    text = re.sub(r"[0-9]+ GiB are free", "100 GiB are free", text)
    return re.sub(r"(none; )?PyTorch [0-9].*", "PyTorch ...", text)


async def run_doctor(consortium: Consortium) -> tuple[int, str]:
    done = await consortium.command("doctor", "--dir", str(consortium.directory.root))
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.thorough
@pytest.mark.skipif(not isolation_permitted(), reason="this system permits no network namespaces")
async def test_a_silo_for_which_everything_holds(consortium: Consortium) -> None:
    async with consortium.gateway():
        await consortium.join()
        consortium.offer()
        while (found := await run_doctor(consortium))[0] != 0 and "not accepted" in found[1]:
            pass  # the gateway's cache has yet to follow the cluster
    code, text = found
    assert (code, normalized_text(text, consortium)) == (0, GOLDEN.read_text())


@pytest.mark.thorough
async def test_a_silo_that_nobody_has_accepted_and_that_offers_nothing(consortium: Consortium) -> None:
    async with consortium.gateway():
        invitation = str(consortium.invite())
        joined = await consortium.command("join", invitation, "--dir", str(consortium.directory.root))
        assert joined.returncode == 0, joined.stderr
        code, text = await run_doctor(consortium)
    assert code == 1
    fingerprint = consortium.directory.signing_key().verify_key.fingerprint
    assert f"FAILED  enrolment  the key {fingerprint} is not accepted yet" in text
    assert re.search(r"^FAILED  silo\.yaml  .*datasets.*list the datasets", text, re.MULTILINE)
    code, text = await run_doctor(consortium)
    assert f"FAILED  connection 127.0.0.1:{consortium.port} refuses connections" in text


async def test_before_a_silo_has_joined_there_is_nothing_to_examine(consortium: Consortium) -> None:
    done = await consortium.command("doctor", "--dir", str(consortium.directory.root))
    assert done.returncode == 2
    assert "run fedsilo silo join" in done.stderr


async def in_a_pod(consortium: Consortium, key: Path, storage: Path) -> subprocess.CompletedProcess[str]:
    invitation = str(consortium.root / "invitation.yaml")
    arguments = ["--invitation", invitation, "--key", str(key), "--storage", str(storage)]
    return await asyncio.to_thread(warm.run, "fedsilo.hub.doctor", arguments, env=os.environ)


@pytest.mark.thorough
async def test_in_a_pod_the_way_and_a_volume_are_examined(consortium: Consortium, tmp_path: Path) -> None:
    async with consortium.gateway():
        await consortium.join()
        while (
            "not accepted"
            in (found := await in_a_pod(consortium, consortium.directory.key_file, tmp_path)).stdout
        ):
            pass  # the gateway's cache has yet to follow the cluster
        assert (found.returncode, found.stderr) == (0, "")
        assert re.search(r"^ok +enrolment +silo-north/north is accepted$", found.stdout, re.MULTILINE)
        assert found.stdout.endswith("9 checks: 9 ok, 0 failed, 0 skipped\n")
        missing = tmp_path / "missing"
        found = await in_a_pod(consortium, missing, missing)
    assert found.returncode == 1
    assert re.search(
        r"^FAILED +proof +there is no signing key; look into the log", found.stdout, re.MULTILINE
    )
    assert re.search(r"^FAILED +storage +.*missing: No such file", found.stdout, re.MULTILINE)


async def test_in_a_pod_without_an_invitation_one_line_says_so(
    consortium: Consortium, tmp_path: Path
) -> None:
    found = await in_a_pod(consortium, tmp_path, tmp_path)
    assert found.returncode == 2
    assert "invitation.yaml: cannot be read (No such file or directory); give the file" in found.stderr
    assert "Traceback" not in found.stderr


def is_failed(found: Finding, said: str) -> bool:
    return found.state is FindingState.FAILED and said in found.text


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_disk_without_space(consortium: Consortium) -> None:
    root = consortium.directory.root
    root.mkdir()
    with small_disk(root):
        consortium.directory.prepare()
        assert is_failed(
            examine_storage(root, consortium.directory.private_directory / "doctor"),
            "0 MiB are free; make room",
        )
        with (root / "data").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
            while True:
                file.write(bytes(4096))
        assert is_failed(
            examine_storage(root, consortium.directory.private_directory / "doctor"),
            "No space left on device; ",
        )


@pytest.mark.thorough
def test_cards_that_pytorch_does_not_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert is_failed(
        doctor._gpu(tmp_path / "gpus"), "finds none of this machine's 1; install a build of it for CUDA"
    )
    assert doctor._gpu(tmp_path / "none").state is FindingState.HOLDS


def test_a_pytorch_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert is_failed(
        doctor._gpu(tmp_path), "PyTorch does not start (ImportError: libcudart.so.13: cannot open"
    )
    monkeypatch.setattr("sys.executable", f"{tmp_path}/python")
    assert is_failed(
        doctor._gpu(tmp_path),
        f"PyTorch does not start ({tmp_path}/python: No such file or directory); install",
    )


def test_a_system_that_isolates_nothing(consortium: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    consortium.directory.root.mkdir()
    consortium.directory.prepare()
    script = (
        "import sys; from fedsilo_agent.trainer import isolation_trial as trial;"
        "trial.isolate = lambda *_: 'not isolated: this system permits no network namespace';"
        "sys.exit(trial.main())"
    )

    def run(*arguments: str) -> str:
        assert arguments[:2] == ("-m", TRIAL)
        command = [sys.executable, "-c", script, *arguments[2:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    monkeypatch.setattr(doctor, "_run", run)
    found = doctor._isolation(consortium.directory, "https://127.0.0.1:1")
    assert is_failed(
        found, "permits no network namespace; no job is begun here: run fedsilo silo serve as root"
    )
