"""Every value of every chart changes something, and a wrong one is refused in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

from charts.generate import documented_values
from fedsilo.api.invitation import SiloInvitation
from tests.cluster.charts.helm import (
    GLOBAL,
    OPERATOR,
    SILO,
    Helm,
    Values,
    invitation,
    merge_values,
    nested_values,
)
from tests.cluster.charts.value_cases import BASE, CHANGES, INSTITUTION, OF_INSTITUTION
from tests.cluster.charts.wrong_values import COMBINED_OPERATOR_VALUES, COMBINED_VALUES, WRONG_VALUES


def base_of(chart: Path, path: str) -> Values:
    return INSTITUTION if chart == SILO and path.partition(".")[0] in OF_INSTITUTION else BASE[chart]


@cache
def render_chart(chart: Path, path: str) -> str:
    return Helm().run("template", "north", str(chart), values=base_of(chart, path))


def cases(table: Mapping[Path, Mapping[str, tuple[object, str]]]) -> pytest.MarkDecorator:
    parameters = [
        pytest.param(chart, path, *case, id=f"{chart.name}-{path}")
        for chart, rows in table.items()
        for path, case in rows.items()
    ]
    return pytest.mark.parametrize(("chart", "path", "value", "text"), parameters)


@pytest.mark.parametrize("chart", [OPERATOR, SILO], ids=lambda chart: chart.name)
def test_the_tables_have_every_value(chart: Path) -> None:
    paths = [value.path for value in documented_values((chart / "values.yaml").read_text())]
    if chart == SILO:
        assert paths[: len(INVITATION)] == list(INVITATION)
        paths = paths[len(INVITATION) :]
    assert list(CHANGES[chart]) == list(WRONG_VALUES[chart]) == paths


INVITATION = ("apiVersion", "kind", "hub", "silo", "token", "expires", "checksum")
"""Values that are the fields of an invitation, and only together."""


def test_the_values_of_an_invitation_are_its_fields() -> None:
    fields = [field.alias or name for name, field in SiloInvitation.model_fields.items()]
    assert fields == list(INVITATION)


@pytest.mark.parametrize("private", [False, True])
def test_an_invitation_that_is_as_it_was_printed_is_accepted(private: bool) -> None:
    """Helm computes the same checksum, with letters, too, that other encoders of JSON would escape."""
    values = BASE[SILO] | yaml.safe_load(invitation("default/north", private=private).to_yaml())
    assert "kind: Deployment" in Helm().run("template", "north", str(SILO), values=values)


@pytest.mark.parametrize("field", INVITATION)
def test_an_invitation_that_was_changed_by_a_letter_is_refused(field: str) -> None:
    changed = dict(INSTITUTION)
    if field == "hub":
        changed["hub"] = changed["hub"] | {"url": "https://hub.exemple:8443"}
    else:
        changed[field] = changed[field][:-1] + ("2" if changed[field][-1] != "2" else "3")
    said = Helm().refusal("template", "north", str(SILO), values=changed)
    assert f"at '/{field}'" in said if field in ("apiVersion", "kind") else "checksum: does not fit" in said
    without = {name: value for name, value in INSTITUTION.items() if name != field}
    assert "checksum: does not fit" in Helm().refusal("template", "north", str(SILO), values=without)


def test_an_invitation_is_for_one_namespace_and_one_name() -> None:
    said = Helm().refusal("template", "north", str(SILO), "-n", "elsewhere", values=INSTITUTION)
    assert "silo: the invitation is for default/north, and this is namespace elsewhere; install" in said
    said = Helm().refusal("template", "north", str(SILO), values=INSTITUTION | {"name": "south"})
    assert "name: is south, and the invitation is for default/north; remove name" in said


@cases(CHANGES)
def test_a_value_changes_something(chart: Path, path: str, value: object, text: str) -> None:
    before = render_chart(chart, path)
    values = merge_values(base_of(chart, path), nested_values(path, value))
    after = Helm().run("template", "north", str(chart), values=values)
    if text:
        assert text not in before
        assert text in after
    else:
        assert len(after) < len(before)


@cases(WRONG_VALUES)
def test_a_wrong_value_is_refused(chart: Path, path: str, value: object, text: str) -> None:
    values = merge_values(base_of(chart, path), nested_values(path, value))
    assert text in Helm().refusal("template", "north", str(chart), values=values)


@pytest.mark.parametrize(("values", "text"), COMBINED_VALUES, ids=[text for _, text in COMBINED_VALUES])
def test_values_that_do_not_go_together_are_refused(values: Values, text: str) -> None:
    assert text in Helm().refusal("template", "north", str(SILO), values=merge_values(BASE[SILO], values))


@pytest.mark.parametrize(
    ("values", "text"), COMBINED_OPERATOR_VALUES, ids=[text for _, text in COMBINED_OPERATOR_VALUES]
)
def test_values_of_the_operator_that_do_not_go_together_are_refused(values: Values, text: str) -> None:
    said = Helm().refusal("template", "north", str(OPERATOR), values=merge_values(BASE[OPERATOR], values))
    assert text in said


def test_aggregators_that_serve_nothing_cannot_be_watched() -> None:
    values = {"global": GLOBAL, "metrics": {"enabled": False, "podMonitor": {"enabled": True}}}
    said = Helm().refusal("template", "north", str(OPERATOR), values=values)
    assert "metrics.podMonitor: aggregators serve no metrics; set metrics.enabled, too" in said


@pytest.mark.parametrize("name", ["a" * 41, "1st", "a.b"])
def test_the_name_of_a_release_that_is_none_of_a_silo_is_refused(name: str) -> None:
    said = Helm().refusal("template", name, str(SILO), values=BASE[SILO])
    assert f"name: the release's name {name} cannot be that of a Silo" in said


FREE_ENDINGS = (
    *("global", "quota", "hub", "agent.resources", "agent.guardResources"),
    *("abels", "nnotations", "nodeSelector", "affinity"),
)
"""Ends of the paths of values whose entries have names of the user's choice, or which are values as a whole."""


def groups(content: Values, prefix: str = "") -> Iterator[str]:
    """The mappings of a values.yaml whose entries are values of their own."""
    yield prefix
    for name, value in content.items():
        path = f"{prefix}.{name}".strip(".")
        if isinstance(value, dict) and not path.endswith(FREE_ENDINGS):
            yield from groups(value, path)


def all_groups() -> list[tuple[Path, str]]:
    return [
        (chart, path)
        for chart in (OPERATOR, SILO)
        for path in groups(yaml.safe_load((chart / "values.yaml").read_text()))
        if not path.endswith(("resources.requests", "resources.limits"))
    ]


@pytest.mark.parametrize(("chart", "group"), all_groups())
def test_an_unknown_value_is_refused(chart: Path, group: str) -> None:
    values = merge_values(base_of(chart, group), nested_values(f"{group}.nonsense".strip("."), 1))
    said = Helm().refusal("template", "north", str(chart), values=values)
    assert (
        f"at '/{group.replace('.', '/')}': additional properties 'nonsense' not allowed".replace("'/'", "''")
        in said
    )


@pytest.mark.parametrize(
    ("chart", "path"),
    [
        (chart, path)
        for chart in (OPERATOR, SILO)
        for path in (*CHANGES[chart], *(group for where, group in all_groups() if where == chart and group))
    ],
)
def test_what_is_set_to_null_is_left_out_or_refused(chart: Path, path: str) -> None:
    """Helm takes null for "remove the default", which must never end in an error of a template."""
    values = merge_values(base_of(chart, path), nested_values(path, None))
    try:
        Helm().run("template", "north", str(chart), values=values)
    except AssertionError as refused:
        assert any(text in str(refused) for text in ("missing property", "got null", "names no registry"))
