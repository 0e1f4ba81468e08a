"""The planted faults can still be planted; `python -m tests.planted` says whether they are noticed."""

from __future__ import annotations

import pytest

from tests.paths import ROOT
from tests.planted.faults import FAULTS, PlantedFault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.promise)
def test_a_fault_can_be_planted(fault: PlantedFault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.before) == 1
    assert fault.after != fault.before
    assert all((ROOT / path).exists() for path in fault.noticed.split())
