"""The page of the metrics has a row for each, and says of each how it is computed."""

from __future__ import annotations

import re

from fedsilo.learning.metrics.catalogue import METRICS
from fedsilo.learning.metrics.scores import _OF_SCIKIT_LEARN
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "evaluation.md").read_text()


def test_the_page_has_a_row_for_every_metric() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert rows == list(METRICS)


def test_every_metric_of_predictions_is_computed() -> None:
    assert set(_OF_SCIKIT_LEARN) == {name for name, entry in METRICS.items() if entry.source == "predictions"}
