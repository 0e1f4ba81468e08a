"""The command for a machine with a GPU: device, time limits, what is kept, the page; and all its parts on the CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import bundle, clients, devices, page
from benchmarks.gpu.__main__ import PAGE, RESULTS_DIRECTORY, main
from benchmarks.gpu.bundle import stated_commit
from benchmarks.gpu.cases import Case, Figures, Goal, Part, Setting, SkippedCase
from benchmarks.gpu.child import outcome_of
from benchmarks.gpu.devices import Device, NoSuchDevice, choose, environment
from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.records import Outcome, Record, begin_record, read_all
from benchmarks.gpu.running import Run, figure_text, summary
from benchmarks.tables import layouts
from tests.pages import runs
from tests.terminal import Terminal

PROCESSOR = Device("cpu", 0, "A Processor")
GPUS = [Device("cuda", 0, "NVIDIA H100 80GB HBM3", 80 << 30), Device("cuda", 1, "NVIDIA T4", 15 << 30)]
TESTS = "tests.unit.benchmarks.test_gpu"

NOT_HERE = re.compile(r"^  (.*): skipped: ", re.MULTILINE)
NO_GPU = re.compile(r"^  tests that are marked gpu: passed 0, skipped [1-9]", re.MULTILINE)
"""What the command prints where there is no GPU."""


@pytest.mark.parametrize(
    ("found", "asked", "chosen"),
    [
        ([], None, PROCESSOR),
        ([], "cpu", PROCESSOR),
        (GPUS, None, GPUS[0]),
        (GPUS, "cuda", GPUS[0]),
        (GPUS, "cuda:1", GPUS[1]),
        (GPUS, "cpu", PROCESSOR),
    ],
)
def test_which_device_is_measured(found: list[Device], asked: str | None, chosen: Device) -> None:
    assert choose(found, asked, PROCESSOR) == chosen


@pytest.mark.parametrize(
    ("found", "asked", "said"),
    [
        ([], "cuda", "--device: 'cuda': PyTorch finds no GPU here; name cpu, which runs the reduced form"),
        (
            GPUS,
            "cuda:2",
            "--device: 'cuda:2': PyTorch finds cuda:0 (NVIDIA H100 80GB HBM3, 80 GiB), cuda:1 (NVIDIA T4, 15 GiB) "
            "here; name one of these",
        ),
        (GPUS, "gpu", "name one of these"),
    ],
)
def test_another_device_is_refused_with_those_that_are_there(
    found: list[Device], asked: str, said: str
) -> None:
    with pytest.raises(NoSuchDevice) as refused:
        choose(found, asked, PROCESSOR)
    assert str(refused.value).endswith(said)


def test_the_chosen_gpu_is_the_first_that_a_part_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment(GPUS[1], GPUS)["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert environment(PROCESSOR, GPUS)["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert environment(GPUS[1], GPUS)["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"


def test_a_device_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "gpus", list)
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cuda:7"])
    assert ended.value.code == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("python -m benchmarks.gpu: error: --device: 'cuda:7'")
    )


# A part for the tests, which the part's process imports from here.


def cases(setting: Setting) -> list[Case]:
    def numbers() -> Figures:
        return {"ratio": 0.9, "curve": [0.1, 0.2], "steps": 12_345}

    def skips() -> Figures:
        raise SkippedCase("there is no second device")

    def fails() -> Figures:
        raise ValueError("two\nlines")

    def prints() -> Figures:
        print("not a report")
        return {"ratio": 1.0}

    def hangs() -> Figures:
        (setting.into / "begun").touch()
        time.sleep(600)
        return {}

    return [
        Case("numbers", numbers),
        Case("skips", skips),
        Case("fails", fails),
        Case("prints", prints),
        Case("hangs", hangs),
        Case("last", numbers),
    ]


def part(seconds: float) -> Part:
    return Part("test", "A part", TESTS, {"full": seconds, "reduced": seconds}, (Goal("ratio", least=0.95),))


def record(**fields: Any) -> Record:
    device = {
        "kind": "cuda",
        "name": "NVIDIA T4",
        "memory": 15 << 30,
        "driver": "580.1",
        "cuda": "13.0",
        "cores": 16,
    }
    return Record("0123abc", "2026-01-02T03:04:05Z", "full", device, {"python": "3.12.1"}, **fields)


def run_part(into: Path, some: Part, kept: Record) -> list[str]:
    told: list[str] = []
    Run(Setting("cpu", "full", into, into, 0), dict(os.environ), told.append, time.time()).run([some], kept)
    return told


@pytest.mark.thorough
def test_a_part_that_is_late_costs_itself_and_the_next_run_goes_on(tmp_path: Path) -> None:
    into, kept = tmp_path / "kept", record()
    into.mkdir()
    told = run_part(into, part(8), kept)
    outcomes = kept.parts["test"]
    assert outcomes["numbers"].figures == {"ratio": 0.9, "curve": [0.1, 0.2], "steps": 12_345}
    assert outcomes["numbers"].goals == ("ratio: at least 0.95",) and outcomes["prints"].goals == ()
    assert outcomes["skips"].skipped == "there is no second device"
    assert (outcomes["fails"].error or "").startswith("ValueError: two lines (test_gpu.py:")
    assert "hangs" not in outcomes and kept.late == {"test": "not finished in 8 s: hangs, last"}
    assert told[0] == "A part (at most 8 s)" and "MISSES ratio: at least 0.95" in told[1]
    [again] = read_all(into)
    assert again == kept and again.finished_cases("test") == ["numbers", "prints"]
    assert [fault.split(":")[0] for fault in kept.faults] == ["test", "test"]


def test_a_run_that_is_killed_leaves_what_was_finished_and_nothing_that_goes_on(tmp_path: Path) -> None:
    into = tmp_path / "kept"
    into.mkdir()
    program = (
        f"from tests.unit.benchmarks.test_gpu import part, record, run_part\n"
        f"from pathlib import Path\nrun_part(Path({str(into)!r}), part(60), record())\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    ends = time.monotonic() + 60
    # A case's figures reach the file after the next case has begun.
    while not (into / "begun").exists() or [k.finished_cases("test") for k in read_all(into)] != [
        ["numbers", "prints"]
    ]:
        assert time.monotonic() < ends
        time.sleep(0.05)
    [child] = [int(pid) for pid in _children(killed.pid)]
    killed.kill()
    killed.wait()
    [kept] = read_all(into)
    assert kept.finished_cases("test") == ["numbers", "prints"]
    while _lives(child):
        assert time.monotonic() < ends, "the part goes on without anybody"
        time.sleep(0.05)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.thorough
@runs("docs/gpu.md", "python -m benchmarks.gpu --data /data")
def test_every_part_runs_on_the_cpu(terminal: Terminal, tmp_path: Path) -> None:
    """The command as it is typed where there is no GPU: its reduced form, whose figures say nothing."""
    [command] = terminal.commands
    terminal.environment["CUDA_VISIBLE_DEVICES"] = ""
    said = terminal.type(command, {"/data": str(tmp_path)})
    first, *_ = said.splitlines()
    assert "reduced form" in first and "FAILED" not in said and "MISSES" not in said
    assert re.findall(r"^(\w.*) \(at most", said, re.MULTILINE) == [part.title for part in PARTS]
    assert NOT_HERE.findall(said)[0] == "two on two devices, NCCL"
    assert NO_GPU.search(said)
    assert re.findall(r"rounds (\d), of (\d)", said) == [("3", "3"), ("5", "5")], "both cells are finished"


def test_figures_of_a_reduced_run_are_judged_by_nobody() -> None:
    figures = Outcome(1.0, {"ratio": 0.5})
    assert "Goal, ratio" in page.page([record(parts={"training": {"lenet": figures}})])
    assert "Goal" not in page.page([replace(record(parts={"training": {"lenet": figures}}), size="reduced")])


def test_the_page_is_of_what_is_kept() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.page(read_all(RESULTS_DIRECTORY))


def test_a_page_names_goals_that_were_missed_and_what_was_not_measured() -> None:
    figures: Figures = {"ratio": 0.9, "samples/s": 123_456.0}
    missed = Outcome(1.0, figures, goals=("ratio: at least 0.95",))
    parts = {
        "training": {"lenet": missed, "resnet20": Outcome(1.0, {"ratio": 0.97})},
        "ranks": {"NCCL": Outcome(skipped="there is one device"), "gloo": Outcome(error="ValueError: no")},
    }
    text = page.page([record(parts=parts, late={"table": "not begun: the run's time was over"})])
    assert "## NVIDIA T4, 2026-01-02" in text and "driver 580.1, CUDA 13.0, 16 cores; python 3.12.1." in text
    assert "Goal, ratio: at least 0.95: 1 of 2 hold." in text
    assert "| lenet | **0.9** | 123,456 |" in text and "| resnet20 | 0.97 |  |" in text
    assert "- NCCL: there is one device\n- gloo: ValueError: no\n" in text
    assert "### One cell of a table at the paper's scale\n" in text and "- not begun: the run's time" in text
    assert "No run on a GPU is kept yet" in page.page([])


def test_figures_are_read_by_persons() -> None:
    assert [
        figure_text(value)
        for value in (0.00012, 0.0, 0.95123, 12.3456, 123456.7, 5000, "yes", [0.1, 0.25], [])
    ] == [
        "1.2e-04",
        "0",
        "0.9512",
        "12.35",
        "123,457",
        "5,000",
        "yes",
        "0.25 after 2",
        "none",
    ]
    assert summary(Outcome(skipped="why")) == "skipped: why"
    assert summary(Outcome(error="why")) == "FAILED: why"
    assert str(Goal("loss", 1, 2)) == "loss: at least 1 and at most 2"


def test_an_assertion_and_an_exit_are_errors_of_the_case() -> None:
    def leaves() -> Figures:
        raise SystemExit("no")

    assert outcome_of(Case("leaves", leaves))["error"].startswith("SystemExit: no (test_gpu.py:")


def test_a_run_goes_on_with_what_was_measured_of_the_same_and_with_nothing_else(tmp_path: Path) -> None:
    device = dict(record().device)

    def write(commit: str = "0123abc", **changes: Any) -> Record:
        found = begin_record(commit, "full", device | changes, tmp_path)
        found.parts["training"] = {
            "lenet": Outcome(1.0, {"ratio": 1.0}),
            "resnet20": Outcome(1.0, {"rounds": 3}, unfinished=True),
            "NCCL": Outcome(skipped="there is one device"),
        }
        found.write(tmp_path)
        return found

    first = write()
    assert first.number == 1 and begin_record("0123abc", "full", device, tmp_path).finished_cases(
        "training"
    ) == ["lenet"]
    assert begin_record("0123abc", "quick", device, tmp_path).parts == {}
    other = write(driver="581.0")
    assert other.number == 2 and other.file_name == "0123abc-nvidia-t4-full-2.json"
    assert begin_record("0123abc", "full", device, tmp_path).finished_cases("training") == ["lenet"], (
        "the first one"
    )
    assert write("4567def-dirty").number == 1 and write("4567def-dirty").number == 2, (
        "nobody knows what that is"
    )
    assert [one.number for one in read_all(tmp_path)].count(2) == 2


def test_a_bundle_says_its_commit_only_of_the_sources_that_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "benchmarks.gpu.bundle"
    (tmp_path / "commit").write_text(f"0123abc {bundle.digest_of_sources()}\n")
    assert stated_commit(None) is None
    monkeypatch.setattr(f"{command}.revision", lambda _: "unknown")
    assert stated_commit(tmp_path) == "0123abc"
    monkeypatch.setattr(f"{command}.digest_of_sources", lambda: "another")
    assert stated_commit(tmp_path) == "0123abc-dirty"
    monkeypatch.setattr(f"{command}.revision", lambda _: "4567def")
    assert stated_commit(tmp_path) is None, "git knows better"


def test_processes_that_would_not_fit_are_not_begun() -> None:
    assert clients.available_bytes() > 1 << 28
    clients.require_memory(1 << 30, 1 << 30, "2 trainers")
    with pytest.raises(
        SkippedCase, match=r"^100 trainers need some 150 GiB of memory, and 120 GiB are free$"
    ):
        clients.require_memory(150 << 30, 120 << 30, "100 trainers")


def test_images_that_are_jpeg_travel_as_they_are_and_others_become_jpeg(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (12, 4, 4, 3), dtype=np.uint8).repeat(8, axis=1).repeat(8, axis=2)
    labels = np.arange(12) % 10
    path = tmp_path / "cifar10-jpeg.npz"
    layouts.write_jpeg(path, {"train": (coarse, labels), "test": (np.moveaxis(coarse, 3, 1), labels)})
    images, found = layouts.cifar10(tmp_path, "test")
    assert images.shape == (12, 32, 32, 3) and np.array_equal(found, labels)
    assert np.abs(images.astype(int) - coarse).mean() < 8
    bundle.copy_images(tmp_path, tmp_path / "copy.npz")
    with np.load(path) as one, np.load(tmp_path / "copy.npz") as other:
        assert all(np.array_equal(one[name], other[name]) for name in one.files)
    with pytest.raises(
        SystemExit, match=r"^--data: '.*nowhere': none of cifar-10-batches-py is there; name the"
    ):
        bundle.copy_images(tmp_path / "nowhere", tmp_path / "copy.npz")


def test_what_a_bundle_pins_and_how_large_it_may_be(tmp_path: Path) -> None:
    lines = (
        "# comment\nfedsilo @ file:///somewhere\nnumpy==2.4.6\ntriton==3.6.0 ; platform_machine == 'x86_64'\n"
    )
    assert bundle.pinned_versions(lines) == {"numpy": "2.4.6", "triton": "3.6.0"}
    (tmp_path / "a.whl").write_bytes(bytes(2_000_000))
    (tmp_path / "b.whl").write_bytes(bytes(1_000_000))
    assert bundle.checked_size(tmp_path) == 3_000_000
    with pytest.raises(
        SystemExit, match=r"3 MB, more than 2; the largest are a\.whl \(2 MB\), b\.whl \(1 MB\)$"
    ):
        bundle.checked_size(tmp_path, 2_000_000)


@pytest.mark.thorough
def test_a_stopped_command_says_how_to_go_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu",
        "--device",
        "cpu",
        "--only",
        "ranks",
        "--into",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
        assert stopped.stdout is not None and stopped.stderr is not None
        while "Several processes" not in stopped.stdout.readline():
            pass
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(60) == 130
        assert stopped.stderr.read() == "\nstopped; the same command goes on from here\n"
    [kept] = read_all(tmp_path)
    assert json.loads((tmp_path / kept.file_name).read_text())["commit"] == kept.commit
    assert replace(kept, parts={}, late={}).faults == []
