"""Fetching a model with what it was made from: a directory that `fedsilo verify` takes, or nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsilo.cli.main import main
from tests.federate import federate, job_spec
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import condition, job
from tests.unit.cli.test_model import AGGREGATOR, EXEC, POD, RUNNING
from tests.unit.engine.synthetic import synthetic_runners
from tests.unit.verification.chains import edit

SPEC = job_spec("fedavg", 2, aggregator={"keepUpdates": True})
FILES = ("model.safetensors", "model.json", "MODEL_CARD.md", "provenance.json")


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    federate(root, SPEC, synthetic_runners(SPEC))
    return root / "aggregator"


@pytest.fixture
def directory(finished_job: Path, tmp_path: Path) -> Path:
    """What is in the volume."""
    return Path(shutil.copytree(finished_job, tmp_path / "volume"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "digits"


def serve(kubectl: FakeKubectl, directory: Path, **spec: Any) -> None:
    """A complete job whose volume holds these files."""
    sha256 = hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
    model = {"claim": "digits-6f1c2c0e", "path": "model.safetensors", "sha256": sha256}
    complete = job(condition("Complete", "True", "Complete"), model=model)
    complete["spec"].update(spec)
    kubectl.json("get federatedjobs.*", complete)
    kubectl.json("get jobs.batch digits-aggregator .*", AGGREGATOR)
    kubectl.answer("create --filename=-", {})
    kubectl.json(f"get pod {POD} .*", RUNNING)
    kubectl.answer("delete pod .*", {})
    kubectl.answer(f"{EXEC} ls -1 /model", {"out": "\n".join(path.name for path in directory.iterdir())})
    for path in (path for path in directory.rglob("*") if path.is_file()):
        name, size = path.relative_to(directory), path.stat().st_size
        content = {"file": str(path), "begin": 0, "most": size}
        kubectl.answer(f"{EXEC} stat -L -c %s /model/{name}", {"out": f"{size}\n"})
        kubectl.answer(rf"{EXEC} tail -c \+1 /model/{name}", content)
        kubectl.answer(f"{EXEC} cat /model/{name}", content)


def fetch(target: Path) -> int:
    return main(["model", "digits", "-n", "research", "--with-provenance", "-o", str(target)])


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_what_is_fetched_is_verified_and_replayed(
    kubectl: FakeKubectl, directory: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(kubectl, directory, aggregator={"keepUpdates": True})
    assert fetch(target) == 0
    released = {
        name: content
        for name, content in contents(directory).items()
        if name in FILES or name.startswith("kept/")
    }
    assert len(released) == 8
    assert contents(target) == released
    assert f"check what it was made from with fedsilo verify {target}\n" in capsys.readouterr().out
    assert main(["verify", str(target), "--replay"]) == 0
    assert kubectl.calls[-1].words[0] == "delete"
    assert [path.name for path in target.parent.iterdir()] == ["digits"]


def test_updates_that_were_not_kept_are_not_asked_for(
    kubectl: FakeKubectl, directory: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(kubectl, directory, output={"tensorboard": True})
    kubectl.answer(f"{EXEC} cat /model/curves.tfevents", {"out": "events"})
    assert fetch(target) == 0
    assert sorted(contents(target)) == sorted([*FILES, "curves.tfevents"])
    assert main(["verify", str(target)]) == 0
    assert "no updates are kept here" in capsys.readouterr().out
    assert main(["verify", str(target), "--replay"]) == 9


def escape(directory: Path) -> None:
    edit(directory, lambda lines: lines[1].update(exchange="../../evil"))


def change_update(directory: Path) -> None:
    path = directory / "kept/r00001-train/r00001-train-s0.update"
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def swap_update(directory: Path) -> None:
    kept = directory / "kept/r00001-train"
    shutil.copyfile(kept / "r00001-train-s1.update", kept / "r00001-train-s0.update")


def change_model(directory: Path) -> None:
    path = directory / "model.json"
    path.write_text(path.read_text().replace('"sha256": "', '"sha256": "0'))


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (escape, 9, "provenance.json: line 2: kept/../../evil/../../evil-s0.update is no file of an update"),
        (change_update, 8, "digest-mismatch: the update kept/r00001-train/r00001-train-s0.update: block "),
        (swap_update, 8, "sha256 of the update kept/r00001-train/r00001-train-s0.update is "),
        (change_model, 8, "digest-mismatch: sha256 of its model.json is "),
        (lambda root: (root / "provenance.json").write_text("{}"), 9, "provenance.json: does not begin with"),
        (lambda root: (root / "provenance.json").unlink(), 1, "the test has no answer"),
    ],
)
def test_what_does_not_fit_leaves_nothing(
    kubectl: FakeKubectl,
    directory: Path,
    target: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Any,
    code: int,
    message: str,
) -> None:
    damage(directory)
    serve(kubectl, directory, aggregator={"keepUpdates": True})
    assert fetch(target) == code
    assert message in capsys.readouterr().err
    assert not list(target.parent.iterdir())
    assert kubectl.calls[-1].words[0] == "delete"


@pytest.mark.parametrize("name", ["digits", "digits.part"])
def test_no_directory_is_overwritten(
    kubectl: FakeKubectl, target: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target.with_name(name).mkdir()
    assert fetch(target) == 2
    assert capsys.readouterr().err == (
        f"fedsilo: {target.with_name(name)}: is there already; remove it or name another directory with -o\n"
    )
    assert not kubectl.calls
    assert target.with_name(name).is_dir()


def test_a_directory_needs_a_place(
    kubectl: FakeKubectl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(tmp_path / "nowhere" / "digits") == 2
    assert "nowhere: there is no such directory; make it first" in capsys.readouterr().err


def test_the_chain_is_verified_without_torch(
    finished_job: Path,
) -> None:
    """Whoever checks a model needs the base installation only."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'torchvision', 'sklearn', 'aiohttp']));"
        f"from fedsilo.cli.main import main; sys.exit(main(['verify', {str(finished_job)!r}, *sys.argv[1:]]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    ran = subprocess.run(
        [sys.executable, "-c", program, "--replay"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "this command needs torch; pip install 'fedsilo[local]'" in ran.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["job"], "--key job: is not NAME=KEY; write job=ed25519:... or namespace/name=ed25519:..."),
        (["job=abc"], "--key job: public key 'abc': write 'ed25519:'"),
        (["job=KEY", "job=KEY"], "--key job=ed25519:"),
    ],
)
def test_a_key_that_is_none_is_refused(
    finished_job: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str
) -> None:
    key = json.loads((finished_job / "provenance.json").read_text())["chain"][0]["taskKey"]
    options = [option for text in given for option in ("--key", text.replace("KEY", key))]
    assert main(["verify", str(finished_job), *options]) == 2
    assert message in capsys.readouterr().err
