"""The page and the picture of what the campaign found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.privacy.campaign import EPSILONS, JOBS, VIEWS

Line = Mapping[str, Any]

PAYLOADS_IN_WORDS = {
    "fedavg": "FedAvg, models",
    "ccvr": "CCVR, class means",
    "creff": "CReFF, averaged gradients",
}
PROTECTION = {None: "none", 8.0: "epsilon 8", 3.0: "epsilon 3", 1.0: "epsilon 1"}


def tables(lines: Sequence[Line]) -> str:
    """All tables, a section for each dataset."""
    parts = []
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        of = [line for line in lines if line["dataset"] == dataset]
        parts += [f"### {dataset}: who is in it", "", *_memberships(of), ""]
        parts += [f"### {dataset}: what the images look like", "", *_inversions(of), ""]
    return "\n".join(parts).rstrip() + "\n"


def _memberships(lines: Sequence[Line]) -> Iterable[str]:
    yield (
        "| sent | noise | accuracy | seen | threshold, AUC | likelihood ratio, AUC | members found, at 1 % false |"
    )
    yield "|---|---|---|---|---|---|---|"
    for method in JOBS:
        for epsilon in EPSILONS:
            for view, name in VIEWS.items():
                own = {line["attack"]: line for line in _lines_of(lines, method, epsilon, view)}
                if own:
                    simple, ratio = own["threshold"], own["likelihood ratio"]
                    yield (
                        f"| {PAYLOADS_IN_WORDS[method]} | {PROTECTION[epsilon]} | {simple['accuracy']:.1%} | {name} "
                        f"| {simple['auc']:.3f} ± {simple['deviation']:.3f} "
                        f"| {ratio['auc']:.3f} ± {ratio['deviation']:.3f} | {ratio['true_positives']:.1%} |"
                    )


def _inversions(lines: Sequence[Line]) -> Iterable[str]:
    yield "| sent | noise | seen | best image, dB | the same to images of others | recognised |"
    yield "|---|---|---|---|---|---|"
    for method in JOBS:
        for epsilon in EPSILONS:
            for view, name in VIEWS.items():
                for line in _lines_of(lines, f"{method} inversion", epsilon, view):
                    best, others = (
                        "–" if line[key] is None else f"{line[key]:.1f}" for key in ("psnr", "others")
                    )
                    yield (
                        f"| {PAYLOADS_IN_WORDS[method]} | {PROTECTION[epsilon]} | {name} | {best} | {others} "
                        f"| {line['recognised']:.1f} of {line['images']} |"
                    )


def _lines_of(lines: Sequence[Line], method: str, epsilon: float | None, view: str) -> list[Line]:
    wanted = (method, epsilon, view)
    return [line for line in lines if (line["method"], line["epsilon"], line["view"]) == wanted]


def draw(lines: Sequence[Line], path: Path) -> None:
    """Attack success against accuracy: a panel for each dataset, a point for each job and protection."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    canvas = Figure(figsize=(6.5 * len(datasets), 4.6), layout="constrained")
    FigureCanvasAgg(canvas)
    for place, dataset in enumerate(datasets, start=1):
        panel = canvas.add_subplot(1, len(datasets), place)
        panel.set_title(f"{dataset}: likelihood-ratio attack")
        panel.set_xlabel("AUC, 0.5 is guessing")
        panel.set_ylabel("test accuracy in percent")
        panel.axvline(0.5, color="gray", linewidth=1, linestyle=":")
        panel.grid(alpha=0.3)
        for color, method in enumerate(JOBS):
            for view, marker in zip(VIEWS, "os", strict=True):
                points = [
                    line
                    for epsilon in EPSILONS
                    for line in _lines_of(lines, method, epsilon, view)
                    if line["dataset"] == dataset and line["attack"] == "likelihood ratio"
                ]
                if points:
                    x, y = (
                        [line["auc"] for line in points],
                        [100 * line["accuracy"] for line in points],
                    )
                    label = f"{PAYLOADS_IN_WORDS[method]}, {VIEWS[view]}"
                    panel.plot(x, y, marker=marker, color=f"C{color}", linewidth=0.8, label=label)
                    for line, *at in zip(points, x, y, strict=True):
                        if view == "update":
                            panel.annotate(PROTECTION[line["epsilon"]], (at[0], at[1]), fontsize="x-small")
        panel.legend(fontsize="x-small")
    canvas.savefig(path, dpi=80, metadata={"Software": None})
