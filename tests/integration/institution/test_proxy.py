"""A silo that serves behind a proxy: guards know its login, from where no trainer looks."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.processes import AgentRunner
from fedsilo.local.child_processes import ForkServerClient
from fedsilo.validation import load_manifest
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.__main__ import _arguments as guard_arguments
from tests.paths import ROOT

PROXY = "http://hospital:a-secret@proxy.example:3128"


def test_the_proxy_is_kept_for_guards_as_long_as_it_is_set(tmp_path: Path) -> None:
    directory = SiloDirectory(tmp_path)
    directory.prepare()
    directory.write_proxy({"HTTPS_PROXY": PROXY})
    assert directory.proxy.read_text() == PROXY
    assert directory.proxy.parent.stat().st_mode & 0o777 == 0o700
    directory.write_proxy({"HTTPS_PROXY": "http://another:3128", "https_proxy": PROXY})
    assert directory.proxy.read_text() == PROXY, "in small letters it comes first"
    directory.write_proxy({})
    assert not directory.proxy.exists()
    directory.write_proxy({})


def test_guards_are_given_the_proxy_and_trainers_are_not(tmp_path: Path) -> None:
    directory, key = SiloDirectory(tmp_path), SigningKey.generate()
    directory.prepare()
    spec = load_manifest(ROOT / "examples/quickstart.yaml").job.spec

    def arguments() -> tuple[list[str], list[str]]:
        made = AgentRunner(directory, "job", "a-uid", key.verify_key, spec, Mock(ForkServerClient))
        return made._guard(key.verify_key), made._trainer()

    assert guard_arguments(arguments()[0]).proxy is None
    directory.write_proxy({"HTTPS_PROXY": PROXY})
    of_guard, of_trainer = arguments()
    assert guard_arguments(of_guard).proxy == directory.proxy
    assert str(directory.proxy) not in of_trainer
    assert f"--hide={directory.private_directory}" in of_trainer
