"""What two hostile silos of ten do to a model of digits, under each rule of `spec.aggregation.rule`.

    python -m benchmarks.robustness              # runs what is missing, then prints the tables and draws the picture
    python -m benchmarks.robustness --render     # of what is on file

Every finished run is a line of JSON; called again, the same command goes on with the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.robustness.federation import ATTACKS, RULES, Cell, run
from benchmarks.tables.results import machine
from fedsilo.errors import FedsiloError

RESULTS_DIRECTORY = Path("docs/results")
SEEDS = (1, 2, 3)
BETAS = (100.0, 0.5)
"""Silos whose classes are alike, and silos that lack some."""

ROUNDS = 20

Line = Mapping[str, Any]


def main() -> int:
    """Run what is missing."""
    args = _arguments()
    path = args.into / "robustness.jsonl"
    try:
        if not args.render:
            campaign(path)
    except FedsiloError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    lines = read(path)
    print(tables(lines))
    draw(lines, args.into / "robustness.png")
    return 0


def cells() -> Iterator[Cell]:
    """All cells, ordered so that one seed of everything comes first."""
    for seed in SEEDS:
        for beta in BETAS:
            for attack in ATTACKS:
                yield from (Cell(attack, rule, beta, seed) for rule in RULES)


def campaign(path: Path) -> None:
    """Run what the file has no line of, and append it."""
    done = {Cell(**{name: line[name] for name in Cell.__annotations__}) for line in read(path)}
    for cell in cells():
        if cell in done:
            continue
        began = time.monotonic()
        found = run(cell, ROUNDS)
        stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine()}
        seconds = round(time.monotonic() - began, 2)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(cell), **asdict(found), "seconds": seconds, **stamp}) + "\n")
        text = f"{cell.attack}, {cell.rule}, beta {cell.beta:g}, seed {cell.seed}: {found.accuracy:.1%}"
        print(text, file=sys.stderr, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of the file, as far as they are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tables(lines: Sequence[Line]) -> str:
    """Accuracy, the backdoor's success and what counted, a table for each division."""
    parts = []
    for beta in BETAS:
        parts += [f"### Dirichlet({beta:g}), accuracy in percent", "", *_table(lines, beta, "accuracy"), ""]
        parts += [f"### Dirichlet({beta:g}), triggered images that are taken for a 0, in percent", ""]
        parts += [*_table(lines, beta, "backdoor"), ""]
        parts += [f"### Dirichlet({beta:g}), how much counted of the hostile silos' models, in percent", ""]
        parts += [*_table(lines, beta, "kept_hostile"), ""]
        parts += [f"### Dirichlet({beta:g}), how much counted of the others' models, in percent", ""]
        parts += [*_table(lines, beta, "kept_others"), ""]
    return "\n".join(parts).rstrip()


def _table(lines: Sequence[Line], beta: float, figure: str) -> Iterator[str]:
    yield f"| rule | {' | '.join(ATTACKS)} |"
    yield f"|---|{'---|' * len(ATTACKS)}"
    for rule in RULES:
        yield f"| {rule} | {' | '.join(_text(_figures_of(lines, beta, rule, attack, figure)) for attack in ATTACKS)} |"


def _figures_of(lines: Sequence[Line], beta: float, rule: str, attack: str, figure: str) -> list[float]:
    wanted = (beta, rule, attack)
    found = [line[figure] for line in lines if (line["beta"], line["rule"], line["attack"]) == wanted]
    return [100 * value for value in found if value is not None]


def _text(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def draw(lines: Sequence[Line], path: Path) -> None:
    """Accuracy by rule and attack: bars for the attacks, a panel for each division."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.5 * len(BETAS), 4.2), layout="constrained")
    FigureCanvasAgg(canvas)
    width = 0.8 / len(ATTACKS)
    for place, beta in enumerate(BETAS, start=1):
        panel = canvas.add_subplot(1, len(BETAS), place)
        panel.set_title(f"Dirichlet({beta:g}), 2 of 10 silos hostile")
        panel.set_ylabel("test accuracy in percent")
        panel.grid(alpha=0.3, axis="y")
        for number, attack in enumerate(ATTACKS):
            values = [_figures_of(lines, beta, rule, attack, "accuracy") for rule in RULES]
            heights = [float(np.mean(found)) if found else 0.0 for found in values]
            at = np.arange(len(RULES)) + number * width
            panel.bar(at, heights, width, label=attack)
        panel.set_xticks(np.arange(len(RULES)) + 0.4 - width / 2, list(RULES), rotation=30, fontsize="small")
        panel.set_ylim(0, 112)
        panel.legend(fontsize="x-small", loc="upper center", ncols=len(ATTACKS))
    canvas.savefig(path, dpi=80, metadata={"Software": None})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.robustness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=RESULTS_DIRECTORY,
        metavar="FOLDER",
        help=f"{RESULTS_DIRECTORY} by default",
    )
    parser.add_argument("--render", action="store_true", help="run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
