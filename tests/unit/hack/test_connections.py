"""The picture of all connections: as it is generated, and nothing in it leads from the hub into an institution."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from hack.connections import CLUSTER, CONNECTIONS, HEIGHT, MACHINE, PARTS, Part, picture
from tests.paths import ROOT

HOUSES = (CLUSTER, MACHINE)


def test_the_picture_is_the_generated_one() -> None:
    shown = ROOT / "docs" / "images" / "connections.svg"
    assert shown.read_text() == picture(), "make reference writes it anew"
    ElementTree.fromstring(picture())


def test_every_line_leads_from_one_part_to_the_other() -> None:
    def touches(part: Part, point: tuple[int, int]) -> bool:
        left, top, width = part.at
        return left <= point[0] <= left + width and top <= point[1] <= top + HEIGHT

    for one in CONNECTIONS:
        assert touches(PARTS[one.source], one.points[0]), one
        assert touches(PARTS[one.target], one.points[-1]), one
    assert [one.number for one in CONNECTIONS] == list(range(1, len(CONNECTIONS) + 1))


def test_nothing_connects_to_an_institution_but_itself_and_what_leaves_goes_to_the_gateway() -> None:
    for one in CONNECTIONS:
        source, target = PARTS[one.source], PARTS[one.target]
        if target.place in HOUSES and source.place != target.place:
            assert one.source == "staff", one
        if source.place in HOUSES and source.place != target.place:
            assert one.target in ("gateway", "registry"), one
    trainers = {name for name in PARTS if name.startswith("trainer")}
    assert not trainers & {end for one in CONNECTIONS for end in (one.source, one.target)}
