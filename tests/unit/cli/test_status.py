"""The jobs as a table, and one job in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsilo.cli import status
from fedsilo.cli.cluster.paragraph import paragraph
from fedsilo.cli.main import main
from fedsilo.cli.status import cut, page, table
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import NOW, ago, condition, conditions_until, entry, job
from tests.unit.cli.waiting_cases import NO_GPU, open_round

GOLDEN = Path(__file__).with_name("golden")

RUNNING = job(
    *conditions_until("Running"),
    condition("Complete", "False", "Running", "round 8\nof 50", days=3),
    **open_round(
        "ARRF",
        silos=[
            entry("north", phase="Starting", state="Awaited", lastRound=7, samples=12040, message=NO_GPU),
            entry("east", phase="Running", state="Reported", lastRound=8, samples=800, bytesSent=1_234_567),
            entry("south"),
        ],
        phase="Running",
        startTime=ago(minutes=9),
        progress="7/50",
        siloProgress="1/2",
        metrics={"accuracy": 0.8765, "loss": 0.4},
        training={"loss": 0.51234},
        refused={"round-closed": 1204},
    ),
)
COMPLETE_JOB = job(
    condition("Complete", "True", "Complete", seconds=20),
    spec={"method": {"name": "creff"}},
    metadata={"name": "a-finished-one", "namespace": "vision", "creationTimestamp": ago(days=4)},
    phase="Complete",
    progress="50/50",
    roundDeadline=ago(minutes=1),
    roundStartTime=ago(minutes=2),
    completionTime=ago(seconds=20),
    metrics={"accuracy": 1},
    model={"claim": "a-finished-one-6f1c2c0e", "path": "model.safetensors", "sha256": "ab" * 32},
)
SCORES = {
    "round": 9,
    "examples": 80,
    "scored": 2,
    "asked": 3,
    "without": ["east"],
    "withheld": [],
    "bySilo": [
        {"name": "north", "examples": 60, "metrics": {"accuracy": 0.9, "loss": 0.1}},
        {"name": "south", "examples": 20, "metrics": {"accuracy": 0.1, "loss": 2.0}},
    ],
}
LOSSY_JOB = job(
    condition("Complete", "True", "Complete", seconds=20),
    phase="Complete",
    metrics={"accuracy": 0.7, "loss": 0.575},
    scores=SCORES,
    silos=[entry("north", state="Finished"), entry("south", state="Finished"), entry("east", state="Failed")],
)
"""A job that has lost one of its silos."""

NEW_JOB = {**job(metadata={"name": "new"}), "status": None}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("status", table([RUNNING, COMPLETE_JOB, NEW_JOB], NOW, namespaces=False)),
        ("status-all", table([RUNNING, COMPLETE_JOB, NEW_JOB], NOW, namespaces=True)),
        ("status-running", page(RUNNING, NOW)),
        ("status-complete", page(COMPLETE_JOB, NOW)),
        ("status-new", page(NEW_JOB, NOW)),
    ],
)
def test_the_output_is_that_of_the_golden_file(name: str, shown: str) -> None:
    assert shown == (GOLDEN / f"{name}.txt").read_text().rstrip("\n")


def test_each_silo_s_scores_stand_below_how_many_examples_they_are_of() -> None:
    _, _, scores, *_ = page(LOSSY_JOB, NOW).split("\n\n")
    head, *rows = scores.splitlines()
    assert head == "  scores of round 9: 80 validation examples of 2 of 3 silos, without east"
    assert [row.split() for row in rows] == [
        ["scored", "on", "examples", "accuracy", "loss"],
        ["north", "60", "0.9", "0.1"],
        ["south", "20", "0.1", "2"],
        ["all", "80", "0.7", "0.575"],
    ]


def test_silos_that_permit_no_score_by_name_are_said() -> None:
    told = job(scores={**SCORES, "bySilo": [], "withheld": ["north"]})
    assert "not by silo: north permits none by name; policy.scores: PerSilo would" in page(told, NOW)


def test_a_job_that_has_lost_a_silo_says_so_in_the_first_line() -> None:
    first = page(LOSSY_JOB, NOW).splitlines()[0]
    assert "Complete, ended with 2 of 3 silos, without east" in first
    told = paragraph(LOSSY_JOB, [], NOW)
    assert "and ended with 2 of 3 silos, without east: " in told
    assert "scored on 80 validation examples of 2 of 3 silos, without east." in told


def test_the_accuracy_of_silos_own_models_has_a_column_where_it_is_reported() -> None:
    silos = [entry("north", phase="Running", personalAccuracy=0.9123), entry("south")]
    head, north, south = page(job(phase="Running", silos=silos), NOW).split("\n\n")[1].splitlines()[:3]
    assert "own model" in head
    assert north.split()[-1] == "91.2%"
    assert "%" not in south
    assert "own model" not in page(RUNNING, NOW)


def test_lines_are_cut_to_a_terminal_and_nowhere_else(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cut("12345\n123456\n", 5) == "12345\n1234…"
    kubectl.json("get federatedjobs.fedsilo.io digits .*", RUNNING)
    assert main(["status", "digits"]) == 0
    assert NO_GPU in capsys.readouterr().out


def test_all_namespaces_are_asked_for(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.items("get federatedjobs.fedsilo.io --all-namespaces .*", COMPLETE_JOB)
    assert main(["status", "-A"]) == 0
    assert "vision/a-finished-one" in capsys.readouterr().out


def test_a_name_and_all_namespaces_contradict_each_other(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "digits", "-A"]) == 2
    assert "use -n" in capsys.readouterr().err
    assert kubectl.calls == []


def test_no_job_is_reported(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.items("get .*")
    assert main(["status"]) == 0
    assert main(["status", "-A"]) == 0
    assert capsys.readouterr().out == "there are no jobs in this namespace\nthere are no jobs\n"


def test_watching_shows_each_change_once_and_ends_with_the_job(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "POLL_SECONDS", 0)
    ended = job(condition("Failed", "True", "QuorumLost"), phase="Failed")
    kubectl.json("get .*", RUNNING, RUNNING, RUNNING, ended)
    assert main(["status", "digits", "--watch"]) == 0
    first, *others = capsys.readouterr().out.split("\n\nresearch/digits")
    assert first.startswith("research/digits  Running")
    assert [text.split()[0] for text in others] == ["Failed"]
    assert len(kubectl.calls) == 4


def test_jobs_without_accuracy_show_their_own_score() -> None:
    numbers = job(phase="Running", metrics={"loss": 9.0, "mae": 2.25})
    best = {"round": 3, "metric": "dice", "value": 0.5}
    masks = job(phase="Running", metrics={"accuracy": 0.9, "dice": 0.5}, best=best, score="dice=0.5")
    shown = table([numbers, masks], NOW, namespaces=False)
    assert "accuracy" not in shown
    assert "mae 2.25" in shown and "dice 50.0%" in shown and " score " in shown
    assert "  best      round 3: dice 0.5" in page(masks, NOW)
    assert "  metrics   dice 0.5, accuracy 0.9" in page(masks, NOW)


FINDINGS = [
    {
        "silo": "default/north",
        "severity": "error",
        "code": "Unreadable",
        "place": "dataset",
        "value": "item 3\x1b[31m is torn",
        "remedy": "mend it",
    },
    {
        "silo": "default/east",
        "severity": "note",
        "code": "ClassSmall",
        "place": "class cat",
        "value": "too few",
        "remedy": "nothing",
    },
]


def test_what_the_silos_say_of_their_data() -> None:
    told = page(job(findings=FINDINGS), NOW)
    assert "  data of        severity  code        place      value" in told
    assert "  default/north  error     Unreadable  dataset    item 3\\x1b[31m is torn  mend it" in told


def test_figures_of_classes_by_name() -> None:
    figures = [{"figures": {"recall": 0.5}, "name": "cat"}, {"figures": {}}, {"figures": {"recall": 1.0}}]
    told = page(job(classes=figures, spec={"data": {"classes": ["a", "b"]}}), NOW)
    assert "  class  recall\n  cat       0.5\n  b           -\n  2           1" in told
    assert "class" not in page(job(classes=[{"answers": [1]}]), NOW)
