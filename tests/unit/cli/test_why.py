"""What a job waits for, in every state that it can be in."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.cli.cluster.paragraph import paragraph
from fedsilo.cli.main import main
from fedsilo.cli.why import wrap_lines
from tests.unit.cli.fake_kubectl import FakeKubectl, forbidden
from tests.unit.cli.objects import NOW, UID, agent, condition, entry, job
from tests.unit.cli.waiting_cases import CASES, PENDING_CONDITION, not_admitted, running

GOLDEN = Path(__file__).with_name("golden") / "why.txt"
EXPECTED_TEXTS = dict(block.split("\n", 1) for block in GOLDEN.read_text().split("# ")[1:])


def test_golden_file_has_just_the_cases() -> None:
    assert list(EXPECTED_TEXTS) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_paragraph_is_that_of_the_golden_file(name: str) -> None:
    told = paragraph(*CASES[name], NOW)
    assert "\n" not in told
    assert told == EXPECTED_TEXTS[name].strip()


def test_the_order_of_agents_does_not_hide_one() -> None:
    agents = [agent(name, PENDING_CONDITION) for name in ("west", "north")]
    told = paragraph(not_admitted(), agents, NOW)
    assert told.count("kubectl fedsilo approve") == 2


@pytest.mark.parametrize("state", ["Awaited", "Failed"])
def test_a_silo_that_was_left_out_is_not_named_whatever_its_state_says(state: str) -> None:
    left_out = entry("north", phase="LeftOut", state=state)
    awaited = entry("east", phase="Running", state="Awaited")
    told = paragraph(running("AAAA", silos=[left_out, awaited]), [], NOW)
    assert "waits for silo-east/east" in told
    assert "north" not in told


def test_the_command_asks_for_the_job_and_all_its_agents(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json("get federatedjobs.fedsilo.io digits .*", not_admitted())
    kubectl.items("get siloagents.fedsilo.io --all-namespaces .*", agent("east", PENDING_CONDITION))
    assert main(["why", "digits", "-n", "research"]) == 0
    assert "approve digits-east-1a2b3c4d -n silo-east" in capsys.readouterr().out
    assert [call.line for call in kubectl.calls] == [
        "get federatedjobs.fedsilo.io digits --namespace research --output=json",
        f"get siloagents.fedsilo.io --all-namespaces --selector=fedsilo.io/job-uid={UID} --namespace research "
        "--output=json",
    ]


def test_who_may_not_list_everywhere_is_asked_about_each_namespace(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.json("get federatedjobs.fedsilo.io digits .*", not_admitted())
    kubectl.refuse("get siloagents.fedsilo.io --all-namespaces .*", forbidden("list", "siloagents"))
    kubectl.items("get siloagents.* --namespace silo-east .*", agent("east", PENDING_CONDITION))
    kubectl.refuse("get siloagents.*", forbidden("list", "siloagents", namespace="silo-north"))
    assert main(["why", "digits"]) == 0
    assert "approve digits-east-1a2b3c4d -n silo-east" in capsys.readouterr().out


def test_a_command_is_never_broken_over_lines() -> None:
    told = paragraph(job(condition("Complete", "True", "Complete"), model={"claim": "x"}), [], NOW)
    for width in (20, 40, 80):
        lines = wrap_lines(told, width).splitlines()
        assert any(
            "`kubectl fedsilo model digits -n research -o model.safetensors`" in line for line in lines
        )
        assert " ".join(lines) == told


def test_a_terminal_gets_lines_of_its_width(kubectl: FakeKubectl) -> None:
    kubectl.json("get federatedjobs.*", job(observedGeneration=None))
    kubectl.items("get siloagents.*")
    reader, terminal = pty.openpty()
    code = "import sys; from fedsilo.cli.main import main; sys.exit(main(['why', 'digits']))"
    environment = {**os.environ, "COLUMNS": "60"}
    done = subprocess.run([sys.executable, "-c", code], stdout=terminal, env=environment, check=True)
    os.close(terminal)
    lines = os.read(reader, 65536).decode().splitlines()
    os.close(reader)
    assert done.returncode == 0
    assert len(lines) > 2
    assert all(len(line) <= 60 for line in lines if "`" not in line)


def test_what_is_wrong_with_the_silos_data_is_said_while_the_job_goes_on() -> None:
    findings = [
        {
            "silo": "a/north",
            "severity": "warning",
            "code": "Duplicates",
            "place": "examples",
            "value": "9 copies",
        },
        {
            "silo": "a/east",
            "severity": "note",
            "code": "ClassSmall",
            "place": "class cat",
            "value": "too few",
        },
    ]
    told = paragraph(job(condition("Complete", "True", "Complete"), findings=findings), [], NOW)
    assert told.endswith(
        " The check of its data found 1 warning. a/north: Duplicates: examples: 9 copies. All findings and "
        "remedies: `kubectl fedsilo status digits -n research`."
    )
    failed = paragraph(job(condition("Failed", "True", "DataInvalid", "torn"), findings=findings), [], NOW)
    assert "The check" not in failed
