"""docs/differential-privacy.md as its reader types it, and what nobody shall find afterwards."""

from __future__ import annotations

import json

from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal


@runs("docs/differential-privacy.md", "fedsilo run -f examples/private.yaml")
def test_a_private_job_says_what_it_promised_and_tells_no_loss(terminal: Terminal) -> None:
    (terminal.folder / "examples").unlink()  # a link to those of the project
    (terminal.folder / "examples").mkdir()
    text = (ROOT / "examples" / "private.yaml").read_text()
    (terminal.folder / "examples" / "private.yaml").write_text(text.replace("rounds: 20", "rounds: 2"))
    (command,) = terminal.commands
    said = terminal.type(command)
    assert "epsilon 3 at delta 0.001 for each example, over the whole job" in said
    assert "kept    north " in said

    (run,) = (terminal.folder / "runs").iterdir()
    history = [json.loads(line) for line in (run / "aggregator" / "history.jsonl").read_text().splitlines()]
    assert [line["training"] for line in history] == [{}, {}]
    described = json.loads((run / "aggregator" / "model.json").read_text())
    assert described["differentialPrivacy"]["epsilon"] == 3
    assert "Differential privacy covers all" in (run / "aggregator" / "MODEL_CARD.md").read_text()
