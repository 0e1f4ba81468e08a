"""What must hold on a machine of an institution's own, beside the way to the hub: isolation, GPU, storage, silo.yaml.

What trainers do is tried in processes of their own, with the Python that would run them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from fedsilo.errors import FedsiloError
from fedsilo.files.durable import make_own_directory
from fedsilo.hub.doctor.finding import Finding, failed_finding, holds, skipped_finding
from fedsilo.hub.doctor.storage import examine_storage
from fedsilo.hub.doctor.way import examine_way
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.silo_file import read_silo
from fedsilo.silo.shared_data import shared_data

TRIAL = "fedsilo_agent.trainer.isolation_trial"
"""A program of the agent's package, which depends on this one."""

GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver lists the cards of this machine."""

TORCH = """
import json, torch
names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "names": names}))
"""

TRIAL_SECONDS = 120.0


async def examine(directory: SiloDirectory, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """All that must hold here, the way to the hub first.

    :raises FedsiloError: when the directory is no silo's that has joined, or another user's.
    """
    member, key = directory.require_membership(), directory.signing_key()
    found = await examine_way(member.hub, member.silo, [key], environment)
    return [
        *found,
        examine_storage(directory.root, directory.private_directory / "doctor"),
        _isolation(directory, member.hub.url),
        _gpu(GPUS),
        _offer(directory, member.silo, key.verify_key.to_text()),
        skipped_finding("images", "guard and trainer are processes of this installation; nothing is pulled"),
    ]


def _isolation(directory: SiloDirectory, url: str) -> Finding:
    """What a trainer can do here, tried by a process that is isolated like one."""
    address = urlsplit(url)
    try:
        make_own_directory(directory.agents)
        with TemporaryDirectory(prefix=".doctor-", dir=directory.agents) as volume:
            hidden = [
                f"--hide={path}" for path in (directory.private_directory, directory.logs) if path.is_dir()
            ]
            home = ["--home", str(directory.root), "--volume", volume]
            outside = ["--connect", str(address.hostname), str(address.port or 443)]
            tried = json.loads(_run("-m", TRIAL, *hidden, *home, *outside))
    except (OSError, ValueError, FedsiloError, subprocess.SubprocessError) as error:
        return failed_finding(
            "isolation", f"cannot be tried ({_last_line(error)}); install fedsilo[local] anew"
        )
    if not tried["isolated"]:
        return failed_finding(
            "isolation",
            f"{tried['said']}; no job is begun here: run fedsilo silo serve as root, or permit user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1)",
        )
    if tried["reached"] or tried["seen"]:
        what = f"reaches {url}" if tried["reached"] else f"sees {', '.join(tried['seen'])}"
        return failed_finding(
            "isolation", f"a trainer {what}; begin no job, and send this line to fedsilo's authors"
        )
    return holds("isolation", "a trainer has no network, and sees neither key nor guard")


def _gpu(cards: Path) -> Finding:
    """Whether the PyTorch that trainers run finds the GPUs that the driver lists."""
    listed = len(list(cards.iterdir())) if cards.is_dir() else 0
    try:
        seen = json.loads(_run("-c", TORCH))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return failed_finding(
            "GPU", f"PyTorch does not start ({_last_line(error)}); install fedsilo[local] anew"
        )
    names, version = seen["names"], seen["version"]
    if names:
        return holds("GPU", f"PyTorch {version} finds {', '.join(names)}")
    if listed:
        return failed_finding(
            "GPU",
            f"PyTorch {version} finds none of this machine's {listed}; install a build of it for CUDA that fits the "
            "driver (nvidia-smi), and let this user open /dev/nvidia*",
        )
    return holds("GPU", f"none; PyTorch {version} computes on the CPU")


def _offer(directory: SiloDirectory, silo: str, public_key: str) -> Finding:
    try:
        found = read_silo(directory, silo, public_key)
    except FedsiloError as error:
        return failed_finding("silo.yaml", " ".join(str(error).split()))
    except OSError as error:
        return failed_finding(
            "silo.yaml", f"{directory.silo_file}: {error.strerror}; restore it, or join again"
        )
    offered = f"offers {', '.join(dataset.name for dataset in found.spec.datasets)}"
    return holds("silo.yaml", "; ".join([offered, *shared_data(found, directory.root, here=True)]))


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=TRIAL_SECONDS,
    )
    return done.stdout


def _last_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) and error.stderr else str(error)
    return str(text).strip().rpartition("\n")[2]
