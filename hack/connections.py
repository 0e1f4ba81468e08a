"""The picture of every connection, with its direction, port and credential: `python -m hack.connections FILE.svg`.

`CONNECTIONS` is what the picture shows; tests hold it to what the code opens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from fedsilo_operator.workloads.pod import METRICS_PORT, PORT

HUB, CLUSTER, MACHINE, OUTSIDE = "hub", "cluster", "machine", "outside"
"""Places where something stands: the hub's cluster, an institution's, a machine without Kubernetes, none of them."""


@dataclass(frozen=True)
class Part:
    """A process, or somebody.

    :param place: one of the four above.
    :param at: left and upper edge, width.
    :param note: a second line.
    """

    title: str
    place: str
    at: tuple[int, int, int]
    note: str = ""


@dataclass(frozen=True)
class Connection:
    """One kind of connection.

    :param points: of its line, from `source` to `target`.
    :param label: point at which its number stands.
    """

    number: int
    source: str
    target: str
    port: str
    credential: str
    points: Sequence[tuple[int, int]]
    label: tuple[int, int]


PARTS: Mapping[str, Part] = {
    "office": Part("office", OUTSIDE, (10, 100, 100), "kubectl"),
    "hub-api": Part("API server", HUB, (160, 100, 150)),
    "operator": Part("operator", HUB, (160, 210, 150), "controllers, dashboard"),
    "gateway": Part("gateway", HUB, (420, 100, 150)),
    "aggregator": Part("aggregator", HUB, (420, 210, 150), "one for each job"),
    "guard-a": Part("guard", HUB, (420, 350, 150), "key, no data"),
    "trainer-a": Part("trainer", HUB, (160, 350, 150), "data, no network"),
    "connector": Part("silo controller", CLUSTER, (760, 100, 160), "and connector"),
    "local-api": Part("API server", CLUSTER, (1000, 100, 150)),
    "nodes": Part("nodes", CLUSTER, (1000, 166, 150)),
    "guard-b": Part("guard", CLUSTER, (760, 232, 160), "key, no data"),
    "trainer-b": Part("trainer", CLUSTER, (1000, 232, 150), "data, no network"),
    "staff": Part("platform team", OUTSIDE, (1220, 100, 125), "kubectl, helm"),
    "serve": Part("fedsilo silo serve", MACHINE, (760, 380, 160), "dashboard on 127.0.0.1"),
    "guard-c": Part("guard", MACHINE, (760, 470, 160), "key, no data"),
    "trainer-c": Part("trainer", MACHINE, (1000, 470, 150), "data, no network"),
    "registry": Part("image registry", OUTSIDE, (1220, 310, 125), "or a mirror"),
}
HEIGHT = 48

PLACES: Mapping[str, tuple[str, tuple[int, int, int, int]]] = {
    HUB: ("the hub: the consortium's cluster", (140, 55, 450, 375)),
    "namespace": ("(a) a namespace of the hub's cluster", (150, 305, 430, 110)),
    CLUSTER: ("(b) an institution's own cluster", (740, 55, 430, 240)),
    MACHINE: ("(c) a machine without Kubernetes", (740, 335, 430, 200)),
}

PROOF = "the silo's signing key: a proof in each request"
ACCOUNT = "a ServiceAccount's token"
CONNECTIONS: Sequence[Connection] = (
    Connection(1, "office", "hub-api", "443", "the person's own login", [(110, 124), (160, 124)], (135, 124)),
    Connection(
        2,
        "operator",
        "hub-api",
        "443",
        f"{ACCOUNT}; jobs, Silos, SiloAgents",
        [(210, 210), (210, 148)],
        (210, 180),
    ),
    Connection(
        3,
        "gateway",
        "hub-api",
        "443",
        f"{ACCOUNT}; the status of Silos and SiloAgents, nothing else",
        [(420, 117), (310, 117)],
        (365, 117),
    ),
    Connection(
        4,
        "aggregator",
        "hub-api",
        "443",
        f"{ACCOUNT}; the status of its own job",
        [(420, 225), (365, 225), (365, 135), (310, 135)],
        (365, 180),
    ),
    Connection(
        5,
        "gateway",
        "aggregator",
        f"{PORT}",
        "none of its own: it passes on what silos and aggregator have signed",
        [(495, 148), (495, 210)],
        (495, 180),
    ),
    Connection(6, "guard-a", "aggregator", f"{PORT}", PROOF, [(495, 350), (495, 258)], (495, 285)),
    Connection(7, "connector", "gateway", "443", PROOF, [(760, 117), (570, 117)], (690, 117)),
    Connection(
        8, "guard-b", "gateway", "443", PROOF, [(760, 256), (625, 256), (625, 130), (570, 130)], (690, 256)
    ),
    Connection(
        9, "serve", "gateway", "443", PROOF, [(760, 404), (612, 404), (612, 137), (570, 137)], (690, 404)
    ),
    Connection(
        10, "guard-c", "gateway", "443", PROOF, [(760, 494), (600, 494), (600, 144), (570, 144)], (690, 494)
    ),
    Connection(
        11,
        "connector",
        "local-api",
        "443",
        f"{ACCOUNT}; rights in the silo's namespace only",
        [(920, 124), (1000, 124)],
        (960, 124),
    ),
    Connection(
        12, "staff", "local-api", "443", "the person's own login", [(1220, 124), (1150, 124)], (1195, 124)
    ),
    Connection(
        13,
        "nodes",
        "registry",
        "443",
        "the institution's own, if the registry asks for one",
        [(1150, 190), (1195, 190), (1195, 334), (1220, 334)],
        (1195, 260),
    ),
)
"""All connections of a federation; the names of hosts are looked up besides (port 53), and monitors may scrape port
8080 where a network policy of the owner admits them."""

FILES = (("guard-a", "trainer-a"), ("guard-b", "trainer-b"), ("guard-c", "trainer-c"))
"""Between which no connection exists, but a directory."""

PROXY = (652, 70, 20, 475)
WIDTH = 1360
LEGEND_TOP, LINE_PIXELS = 590, 23

_STYLE = """
 text { font: 14px system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; fill: #1c2024 }
 .quiet { fill: #5b636b; font-size: 12px } .head { font-weight: 600 }
 .place { fill: none; stroke: #5b636b; stroke-width: 1.2 } .within { stroke-dasharray: 5 4 }
 .part { fill: #ffffff; stroke: #1c2024; stroke-width: 1.2 }
 .way { fill: none; stroke: #1f5a99; stroke-width: 1.6 } .files { stroke: #1d6b3c; stroke-dasharray: 2 4 }
 .number { fill: #1f5a99 } .digit { fill: #ffffff; font-size: 11px; font-weight: 600; text-anchor: middle }
 .proxy { fill: #fbf0dc; stroke: #855400 }
"""


def picture() -> str:
    """The picture as SVG."""
    height = LEGEND_TOP + LINE_PIXELS * (len(CONNECTIONS) + 3)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">Every connection between hub and institutions</title>',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#1f5a99"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fcfcfa"/>',
        *_places(),
        *_proxy(),
        *(line for source, target in FILES for line in _files(PARTS[source], PARTS[target])),
        *(_way(connection) for connection in CONNECTIONS),
        *(line for part in PARTS.values() for line in _part(part)),
        *(line for connection in CONNECTIONS for line in _number(connection.number, connection.label)),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{marked}>{escape(text)}</text>'


def _places() -> Iterator[str]:
    for name, (title, (x, y, width, height)) in PLACES.items():
        within = " within" if name == "namespace" else ""
        yield f'<rect class="place{within}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        yield _text(x + 10, y + 22, title, "head")


def _proxy() -> Iterator[str]:
    x, y, width, height = PROXY
    yield f'<rect class="proxy" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>'
    yield _text(x - 62, y - 24, "the institution's proxy,", "quiet")
    yield _text(x - 62, y - 8, "where there is one", "quiet")


def _files(guard: Part, trainer: Part) -> Iterator[str]:
    (left, right) = sorted((guard, trainer), key=lambda part: part.at[0])
    start, end, y = left.at[0] + left.at[2], right.at[0], left.at[1] + HEIGHT // 2
    yield f'<path class="way files" d="M{start} {y} {end} {y}"/>'
    yield _text((start + end) // 2 - 36, y - 6, "files only", "quiet")


def _way(connection: Connection) -> str:
    points = " ".join(f"{x} {y}" for x, y in connection.points)
    return f'<path class="way" marker-end="url(#end)" d="M{points}"/>'


def _part(part: Part) -> Iterator[str]:
    x, y, width = part.at
    yield f'<rect class="part" x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="4"/>'
    yield _text(x + 9, y + (20 if part.note else 29), part.title)
    if part.note:
        yield _text(x + 9, y + 37, part.note, "quiet")


def _number(number: int, at: tuple[int, int]) -> Iterator[str]:
    x, y = at
    yield f'<circle class="number" cx="{x}" cy="{y}" r="10"/>'
    yield _text(x, y + 4, str(number), "digit")


def _legend() -> Iterator[str]:
    columns = (20, 60, 400, 470)
    for x, title in zip(columns, ("", "who connects to whom", "port", "credential"), strict=True):
        yield _text(x, LEGEND_TOP, title, "head")
    for row, one in enumerate(CONNECTIONS, 1):
        y = LEGEND_TOP + LINE_PIXELS * row
        yield from _number(one.number, (32, y - 5))
        source, target = PARTS[one.source], PARTS[one.target]
        yield _text(columns[1], y, f"{source.title} {_place_label(source)}→ {target.title}")
        yield _text(columns[2], y, one.port)
        yield _text(columns[3], y, one.credential)
    y = LEGEND_TOP + LINE_PIXELS * (len(CONNECTIONS) + 1)
    yield _text(
        columns[1],
        y,
        "All are TLS, and nothing connects to an institution from outside. Besides: names are looked up (53), and "
        f"monitors that a network policy admits read metrics ({METRICS_PORT}).",
        "quiet",
    )


def _place_label(part: Part) -> str:
    letter = {CLUSTER: "(b) ", MACHINE: "(c) "}.get(part.place, "")
    return "(a) " if part is PARTS["guard-a"] else letter


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
