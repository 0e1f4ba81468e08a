"""Units that differ between silos are noticed by orders of magnitude, of which nothing else is told."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.data import DataSpec
from fedsilo.data.schema import Schema, TableColumn
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.engine.readiness import readiness_table
from fedsilo.errors import DataInvalid
from fedsilo.readiness.announced import MAGNITUDES, AnnouncedFinding, FindingRules, announced_findings
from fedsilo.readiness.units import Magnitudes, magnitudes_of, sizes_of, unit_differences

DATA = DataSpec.model_validate({"dataset": "d", "classes": 2, "inputShape": [3]})
SCHEMA = Schema(columns=tuple(TableColumn(name, "number") for name in ("mass", "age", "rare")))


def magnitudes(values: np.ndarray, minimum: int = 1) -> Magnitudes:
    return magnitudes_of(FeatureStatistics.of(sizes_of(values)), minimum)


@given(
    values=st.lists(st.floats(0.5, 100), min_size=1, max_size=20),
    factor=st.sampled_from([16, 18.018, 38.67, 100, 1000, 65536]),
)
def test_a_factor_between_units_shows_whatever_the_numbers(values: list[float], factor: float) -> None:
    column = np.array(values)[:, np.newaxis]
    told = {"grams": magnitudes(column * factor), "kilograms": magnitudes(-column)}
    (found,) = unit_differences(told, ["mass"])
    assert (found.code, found.place, found.silo) == ("UnitsDiffer", "feature mass", "all silos")
    assert "in grams as in kilograms" in found.value


@given(st.floats(0.001, 1), st.floats(0.001, 1))
def test_how_rare_a_diagnosis_is_is_no_unit(one: float, other: float) -> None:
    rows = np.arange(1000) / 1000
    told = {
        name: magnitudes((rows < share)[:, np.newaxis] * 1.0) for name, share in (("a", one), ("b", other))
    }
    assert not list(unit_differences(told, ["rare"]))


def test_few_values_tell_nothing() -> None:
    values = np.array([[5.0, 0.0], [7.0, 3.0], [np.nan, 0.0]])
    assert magnitudes(values, 2) == (3, None)
    assert magnitudes(np.zeros((4, 1)), 0) == (None,)


def test_a_silo_tells_magnitudes_only_where_its_policy_permits_statistics_of_features() -> None:
    told = (AnnouncedFinding(MAGNITUDES, magnitudes=(3, None, 1)),)
    assert FindingRules.of(["model", "feature_statistics"], 5).permitted_findings(told) == told
    assert FindingRules.of(["model", "class_counts"], 5).permitted_findings(told) == ()
    assert FindingRules.codes_alone(5).permitted_findings(told) == ()


def test_before_round_1_differing_units_are_named_and_nothing_else_is_said() -> None:
    told = {
        "north": (AnnouncedFinding(MAGNITUDES, magnitudes=(2, 6, None)),),
        "south": (AnnouncedFinding(MAGNITUDES, magnitudes=(12, 7, 1)),),
        "west": (),
    }
    (found,) = readiness_table(DATA, told, dict.fromkeys(("north", "south"), SCHEMA), {})
    assert (found.severity, found.place) == ("warning", "feature mass")
    assert not readiness_table(DATA, {"north": told["north"]}, {"north": SCHEMA}, {})


def test_magnitudes_travel_and_nothing_else_in_their_place() -> None:
    told = AnnouncedFinding(MAGNITUDES, magnitudes=(3, None, -7))
    assert announced_findings(json.loads(json.dumps([told.to_dict()])), DATA) == (told,)


@pytest.mark.parametrize(
    "value",
    [
        {"code": MAGNITUDES},
        {"code": MAGNITUDES, "magnitudes": []},
        {"code": MAGNITUDES, "magnitudes": [1, 2, 3, 4]},
        {"code": MAGNITUDES, "magnitudes": [0.5]},
        {"code": MAGNITUDES, "magnitudes": [True]},
        {"code": MAGNITUDES, "magnitudes": [5000]},
        {"code": MAGNITUDES, "magnitudes": "3"},
        {"code": "FeatureUnscaled", "magnitudes": [1]},
    ],
)
def test_other_magnitudes_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(DataInvalid, match="magnitudes"):
        announced_findings([value], DATA)
