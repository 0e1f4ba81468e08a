"""docs/differential-privacy.md and docs/privacy-budget.md as their readers type them, and what nobody shall find."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from fedsilo.validation import load_manifest
from tests.integration.local.runs import end, history, kill, start, wait_until
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal


def example(rounds: int) -> str:
    """The example with so many rounds."""
    return (ROOT / "examples" / "private.yaml").read_text().replace("rounds: 20", f"rounds: {rounds}")


@pytest.mark.thorough
@runs("docs/differential-privacy.md", "fedsilo run -f examples/private.yaml")
@runs("docs/privacy-budget.md", "fedsilo silo budget /var/lib/fedsilo-silo")
def test_a_private_job_says_what_it_promised_tells_no_loss_and_charges_what_left(terminal: Terminal) -> None:
    """Guards are killed meanwhile, and sign and charge the same updates again."""
    (terminal.folder / "examples").unlink()  # a link to those of the project
    (terminal.folder / "examples").mkdir()
    (terminal.folder / "examples" / "private.yaml").write_text(example(4))
    command, budget = sorted(terminal.commands)
    with terminal.start_command(command) as running:
        (found,) = wait_until(lambda: list(terminal.folder.glob("runs/*")), "the run's directory")
        for complete, silo in enumerate(("north", "east", "north")):
            wait_until(lambda complete=complete: len(history(found)) > complete, "a round")  # type: ignore[misc]
            kill(found, f"{silo} guard")
        said, _ = running.communicate()
    assert "epsilon 3 at delta 0.001 for each example, over the whole job" in said
    assert re.search(r"north +│ +- │", said), "nobody is told how much a single silo holds"
    assert re.search(r"^spent   north (2\.9\d|3) of 4, east ", said, re.MULTILINE)

    assert [line["training"] for line in history(found)] == [{}] * 4
    described = json.loads((found / "aggregator" / "model.json").read_text())
    assert described["differentialPrivacy"]["epsilon"] == 3
    assert "Differential privacy covers all" in (found / "aggregator" / "MODEL_CARD.md").read_text()

    for silo in ("north", "east", "south", "west"):
        volume = found / "silos" / silo
        lines = (volume / "guard" / "ledgers" / "digits.jsonl").read_text().splitlines()
        charged = [event["update"] for line in lines if (event := json.loads(line))["event"] == "charge"]
        audit = [json.loads(line) for line in (volume / "audit" / "log.jsonl").read_text().splitlines()]
        departures = [line for line in audit if line["event"] == "departure"]
        assert charged == [line["digest"] for line in departures if line["step"] == "train"]
        assert len(charged) == 4

    shown = terminal.type(budget, {"/var/lib/fedsilo-silo": str(found)})
    head, *rows = shown.splitlines()
    columns = ["SILO", "DATASET", "UNIT", "EPSILON", "DELTA", "SPENT", "RESERVED", "LEFT", "BY", "JOB"]
    assert head.split() == columns
    assert len(rows) == 4
    for row in rows:
        _, dataset, unit, epsilon, _, spent, kept, left, job, own = row.split()
        assert (dataset, unit, epsilon, kept, job) == (
            "digits",
            "example",
            "4",
            "0",
            "federation/digits-private",
        )
        assert 2.9 < float(spent) <= 3
        assert own == spent
        assert float(spent) + float(left) == pytest.approx(4, abs=1e-3)


def test_a_job_that_hides_silos_says_what_it_promised_and_what_was_charged(tmp_path: Path) -> None:
    """Guards that are killed sign the same bytes again, so that each exchange has one charge and one departure."""
    unit = "{unit: silo, epsilon: 20, delta: 0.2, maxUpdateNorm: 1}"
    written = example(3).replace("{unit: example, epsilon: 3, delta: 0.001}", unit)
    secure = "secure: true\n    weights: uniform\n    rule: {name: norm-clipping, norm: 8}"
    written = written.replace(secure, "weights: uniform")
    manifest, workdir = tmp_path / "job.yaml", tmp_path / "run"
    manifest.write_text(written.replace("epsilon: 4, delta: 0.001}", "epsilon: 300, delta: 0.001}"))
    started = start(manifest, workdir)
    for complete, silo in enumerate(("north", "east")):
        wait_until(lambda complete=complete: len(history(workdir)) > complete, "a round")  # type: ignore[misc]
        kill(workdir, f"{silo} guard")
    ended = end(started, workdir)
    assert ended.code == 0, ended.err
    privacy = UpdatePrivacy.of_job(load_manifest(manifest).job.spec)
    assert privacy is not None and privacy.quorum == 3

    outcome = json.loads(ended.out)
    assert outcome["privacy"] == "epsilon 20 at delta 0.2 for each silo, over the whole job"
    charged = pytest.approx(privacy.example_epsilon(1e-3))
    assert [silo["budget"]["spent"] for silo in outcome["silos"]] == [charged] * 4
    for line in history(workdir):
        assert line["training"] == {}
        assert set(line["samples"].values()) == {0}
    for silo in ("north", "east", "south", "west"):
        volume = workdir / "silos" / silo
        lines = (volume / "guard" / "ledgers" / "digits.jsonl").read_text().splitlines()
        charges = [found for line in lines if (found := json.loads(line))["event"] == "charge"]
        audit = [json.loads(line) for line in (volume / "audit" / "log.jsonl").read_text().splitlines()]
        left = [line for line in audit if line["event"] == "departure"]
        assert [charge["update"] for charge in charges] == [line["digest"] for line in left]
        assert [charge["mechanisms"] for charge in charges] == [[privacy.of_one_example.to_dict()]] * 3
        assert all((line["samples"], line["metrics"]) == (0, {}) for line in left)
    card = (workdir / "aggregator" / "MODEL_CARD.md").read_text()
    assert "Each silo's own model had only a part of that noise." in card
    assert "training examples, all silos together" not in card
