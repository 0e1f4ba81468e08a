"""The dashboard's documents, as data."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.text import join_names
from fedsilo.dashboard.contract import contract
from fedsilo.dashboard.snapshot import JobsSnapshot
from fedsilo.dashboard.view import MAX_JOBS, overview, page
from fedsilo.dashboard.waiting import MAX_NAMES, waiting
from tests.unit.dashboard.snapshots import (
    SPEC,
    Calendar,
    condition,
    conditions_until,
    consortium,
    job,
    machine,
    running,
)

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, document: Any) -> None:
    """Compare with the file; `GOLDEN=write` writes it anew, to be looked at."""
    path, text = GOLDEN / f"{name}.json", json.dumps(document, indent=1, allow_nan=False) + "\n"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_the_overview_of_a_consortium() -> None:
    golden("overview", overview(consortium()))


@pytest.mark.parametrize("name", ["digits", "night-shift", "rare-classes", "scans-2026"])
def test_the_page_of_a_job(name: str) -> None:
    golden(name, page(consortium(), "research", name))


def test_the_page_of_a_job_on_this_machine_has_all_receipts() -> None:
    found = page(machine(), "federation", "digits")
    assert found is not None
    assert found["receipts"]["complete"]
    assert [(item["round"], item["silo"]) for item in found["receipts"]["updates"]] == [
        (2, "east"),
        (2, "north"),
        (1, "east"),
        (1, "north"),
    ]


def test_a_page_has_each_silo_s_scores_and_what_they_are_of() -> None:
    own = [{"name": "north", "examples": 60, "metrics": {"loss": 0.1, "accuracy": 0.9}}]
    scores = {"round": 2, "examples": 60, "scored": 1, "asked": 2, "without": ["south"], "bySilo": own}
    status = {"scores": scores, "metrics": {"accuracy": 0.9, "loss": 0.1}}
    found = page(
        JobsSnapshot(place="cluster", jobs=[job("new", "uid", Calendar().ago(seconds=2), status)]),
        "research",
        "new",
    )
    assert found is not None
    assert found["scores"] == {
        "round": 2,
        "whole": False,
        "refusal": None,
        "names": ["accuracy", "loss"],
        "basis": "60 validation examples of 1 of 2 silos, without south",
        "rows": [
            {"name": "north", "examples": 60, "figures": [0.9, 0.1]},
            {"name": "all", "examples": 60, "figures": [0.9, 0.1]},
        ],
    }


def test_a_job_that_there_is_not_has_no_page() -> None:
    assert page(consortium(), "research", "elsewhere") is None
    assert page(consortium(), "other", "digits") is None


def test_of_other_namespaces_nothing_is_seen() -> None:
    hidden = consortium().filter_namespaces({"elsewhere"})
    assert overview(hidden) == {"place": "cluster", "count": 0, "jobs": [], "silos": [], "events": []}
    assert page(hidden, "research", "digits") is None


def test_a_new_job_has_a_page_before_anybody_wrote_its_status() -> None:
    times = Calendar()
    new = job("new", "uid-new", times.ago(seconds=2), {})
    del new["status"]
    snapshot = JobsSnapshot(place="cluster", jobs=[new])
    found = page(snapshot, "research", "new")
    assert found is not None
    assert found["state"] == "Pending"
    assert found["waiting"]["text"] == "Waits for the operator to look at it"
    assert [silo["name"] for silo in found["members"]] == ["north", "east", "south", "west"]
    assert overview(snapshot)["count"] == 1


def test_of_many_jobs_those_that_go_on_are_shown_first() -> None:
    times = Calendar()
    ended = [
        job(
            f"old-{number}",
            f"uid-{number}",
            times.ago(minutes=number),
            {"conditions": [condition("Complete", "True", times.ago(minutes=1))]},
        )
        for number in range(MAX_JOBS + 10)
    ]
    found = overview(JobsSnapshot(place="cluster", jobs=[*ended, running(times, "still")]))
    assert found["count"] == MAX_JOBS + 11
    assert len(found["jobs"]) == MAX_JOBS
    assert [item["name"] for item in found["jobs"][:3]] == ["still", "old-0", "old-1"]


@pytest.mark.parametrize(
    ("conditions", "status", "text", "reason"),
    [
        ([condition("Accepted", "False", "t", "SiloNotFound")], {}, "Waits to be accepted", "SiloNotFound"),
        ([condition("Accepted", "Unknown", "t", "Unverified")], {}, "Waits for its silos to admit it", ""),
        (conditions_until("Admitted", "t"), {}, "Waits for its silos' agents to run", ""),
        (
            [*conditions_until("Admitted", "t"), condition("SilosReady", "False", "t", "ImageNotFound")],
            {},
            "Waits for its silos' agents to run",
            "ImageNotFound",
        ),
        (conditions_until("Running", "t"), {}, "Is between two rounds", ""),
        (
            conditions_until("Running", "t"),
            {"roundStartTime": "r", "silos": [{"name": "north", "state": "Reported"}]},
            "Folds what the silos sent, or scores the model",
            "",
        ),
        (
            conditions_until("Running", "t"),
            {"roundStartTime": "r", "silos": [{"name": "north", "state": "Awaited"}]},
            "Waits for north",
            "",
        ),
        (
            [*conditions_until("Running", "t"), condition("Suspended", "True", "t")],
            {},
            "Suspended; finished rounds are kept",
            "Suspended",
        ),
    ],
)
def test_where_a_job_stands(conditions: list[Any], status: dict[str, Any], text: str, reason: str) -> None:
    found = waiting(job("digits", "u", "c", {"conditions": conditions} | status))
    assert (found["text"], found["reason"]) == (text, reason)
    assert found["since"] in ("t", "r", "c")


@pytest.mark.parametrize(
    ("answered", "failed", "quorum", "words"),
    [
        (
            3,
            0,
            3,
            "3 of 4 have answered, which is enough: at the deadline the round closes without the others.",
        ),
        (2, 0, 3, "2 of 4 have answered, 3 are needed: at the deadline the job fails with fewer."),
        (2, 1, None, "2 of 4 have answered, all are needed: at the deadline the job fails with fewer."),
    ],
)
def test_what_happens_at_the_deadline(answered: int, failed: int, quorum: int | None, words: str) -> None:
    states = ["Reported"] * answered + ["Failed"] * failed
    states += ["Awaited"] * (4 - len(states))
    silos = [{"name": f"s{place}", "state": state} for place, state in enumerate(states)]
    status = {
        "conditions": conditions_until("Running", "t"),
        "roundStartTime": "r",
        "roundDeadline": "d",
        "silos": silos,
    }
    found = waiting(job("digits", "u", "c", status, {"participation": {"minSilos": quorum}}))
    assert (found["message"], found["since"], found["until"]) == (words, "r", "d")


@pytest.mark.parametrize("rounds", [1, 2, 30, 31, 100])
def test_the_small_curve_has_few_points_and_ends_with_the_last(rounds: int) -> None:
    found = overview(JobsSnapshot(place="cluster", jobs=[running(Calendar(), rounds=rounds)]))["jobs"][0][
        "spark"
    ]
    assert found["name"] == "accuracy"
    assert min(rounds, 2) <= len(found["points"]) <= 31
    assert found["points"][-1][0] == rounds


def test_a_sentence_names_some_of_many_silos() -> None:
    assert join_names(["a"], MAX_NAMES) == "a"
    assert join_names(["a", "b", "c"], MAX_NAMES) == "a, b and c"
    assert join_names([f"s{place}" for place in range(1000)], MAX_NAMES) == "s0, s1, s2, s3, s4 and 995 more"


def test_the_contract_of_each_method_as_text() -> None:
    sentences = {
        "fedavg": "This job receives: models of 62,006 parameters.",
        "ccvr": "This job receives: models of 62,006 parameters; class means for 10 classes; class covariances for 10"
        " classes.",
        "creff": "This job receives: models of 62,006 parameters; averaged gradients for 10 classes.",
        "fedconcat": "This job receives: counts of samples for 10 classes; models of 62,006 parameters; a part of the"
        " model (classifier.weight and classifier.bias).",
    }
    for name, sentence in sentences.items():
        config = {"clusters": 2, "encoderRounds": 10, "classifierRounds": 10} if name == "fedconcat" else {}
        found = contract(SPEC | {"method": {"name": name, "config": config}}, 62_006)
        assert found["sentence"] == sentence
    before = contract(SPEC | {"method": {"name": "fedavg"}}, None)
    assert before["sentence"] == "This job receives: models."


def test_a_job_with_secure_aggregation_receives_sums() -> None:
    found = contract(SPEC | {"method": {"name": "fedavg"}, "aggregation": {"secure": True}}, 5)
    sums = "This job receives sums over silos, and nothing of a single one: models of 5 parameters."
    assert found["sentence"] == sums
    assert [row["phase"] for row in found["phases"]] == ["train", "evaluate"]
    assert found["notes"][-1].startswith("The number of samples is in the sum as well")
    found = contract(SPEC | {"method": {"name": "ccvr"}, "aggregation": {"secure": True}}, 5)
    assert found["notes"][-1].startswith(
        "What is sent of a class is added; of a class that one silo alone has"
    )


def test_what_an_unknown_method_receives_is_not_invented() -> None:
    for spec in (SPEC | {"method": {"name": "elsewhere"}}, {"method": {"name": "elsewhere"}}, {}):
        assert contract(spec, 5).keys() == {"unknown"}
    assert contract(SPEC | {"transforms": [{"name": "signs"}]}, 5) == {
        "unknown": "The transform signs is not installed here, so what it receives cannot be told."
    }


words = st.text(max_size=20)


@given(words, words, st.lists(words, max_size=3))
def test_every_text_arrives_as_it_is_and_in_json(message: str, reason: str, silos: list[str]) -> None:
    snapshot = deepcopy(consortium())
    failed = snapshot.jobs[2]
    failed["status"]["conditions"][-1] |= {"message": message, "reason": reason}
    failed["status"]["silos"] = [{"name": name, "namespace": name, "message": message} for name in silos]
    found = json.loads(json.dumps(page(snapshot, "research", "night-shift")))
    assert (found["waiting"]["message"], found["waiting"]["reason"]) == (message, reason)
    listed_names = [silo["name"] for silo in found["members"]]
    assert listed_names == (silos or ["north", "east", "south", "west"])


def test_a_figure_that_json_cannot_state_is_left_out_and_the_other_jobs_stay() -> None:
    times = Calendar()
    spread = {"accuracy": 0.5, "personal_accuracy_spread": float("inf")}
    curve = [{"round": 1, "metrics": spread, "training": {"loss": float("nan")}}]
    odd = running(times, "odd", metrics=spread, training={"loss": float("nan")}, curve=curve)
    found = overview(JobsSnapshot(place="cluster", jobs=[odd, running(times, "even")]))
    json.dumps(found, allow_nan=False)
    assert {job["name"]: list(job["metrics"]) for job in found["jobs"]}["odd"] == ["accuracy"]
    shown = page(JobsSnapshot(place="cluster", jobs=[odd]), "research", "odd")
    assert shown is not None
    json.dumps(shown, allow_nan=False)
    assert [curve["name"] for curve in shown["curves"]] == ["accuracy"]


@pytest.mark.parametrize(
    "status",
    [
        {"silos": [{"state": "Awaited"}]},
        {"silos": "north"},
        {"curve": [{"metrics": {"accuracy": 0.5}}]},
        {"metrics": [0.5]},
        {"conditions": [{"status": "True"}]},
        {"refused": {"malformed": None}},
    ],
)
def test_a_job_whose_status_is_malformed_hides_no_other(status: dict[str, Any]) -> None:
    times = Calendar()
    odd = running(times, "odd", **status)
    found = overview(JobsSnapshot(place="cluster", jobs=[odd, running(times, "even")]))
    assert {job["name"]: job["state"] for job in found["jobs"]} == {"odd": "Unreadable", "even": "Running"}
    shown = page(JobsSnapshot(place="cluster", jobs=[odd]), "research", "odd")
    assert shown is not None
    assert shown["state"] == "Unreadable"


def test_a_job_s_page_has_what_its_silos_say_of_their_data() -> None:
    found = {
        "silo": "a/north",
        "code": "Duplicates",
        "place": "examples",
        "value": "9 copies",
        "remedy": "none",
    }
    status: dict[str, Any] = {
        "findings": [found | {"severity": severity} for severity in ("error", "warning", "note")]
    }
    status["classes"] = [{"figures": {"recall": 0.5}, "name": "cat"}, {"figures": {"recall": 0.5}}]
    snapshot = JobsSnapshot(place="cluster", jobs=[job("digits", "u", Calendar().ago(minutes=1), status)])
    document = page(snapshot, "research", "digits")
    assert document is not None
    assert [(one["severity"], one["tone"]) for one in document["findings"]] == [
        ("error", "bad"),
        ("warning", "wait"),
        ("note", "none"),
    ]
    assert [one["name"] for one in document["classes"]] == ["cat", "1"]


def test_a_row_of_the_confusion_matrix_has_one_number_for_each_class() -> None:
    found = running(
        Calendar(), classes=[{"figures": {}, "answers": [3, 1, 2]}, {"figures": {}, "answers": [1, 4]}]
    )
    document = page(JobsSnapshot("cluster", [found]), "research", "digits")
    assert document is not None
    assert [one["answers"] for one in document["classes"]] == [[], [1, 4]]
