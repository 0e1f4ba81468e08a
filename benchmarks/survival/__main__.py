"""Index of concordance by strategy and seed, beside FLamby's published runs.

    python -m benchmarks.survival --data tcga_brca.csv --published flamby_results.json

`--data` is a table of patients with `region`, `fold`, 39 covariates, `event` and `days`; `--published` is FLamby's
results as JSON: dataset -> strategy -> test centre -> [mean, deviation] over five seeds. Neither is part of fedsilo.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks.survival.federation import STRATEGIES, concordance_of

FIRST_SEED = 42
"""Seed that FLamby's five begin with."""

DATASET, ALL_ROWS = "fed_tcga_brca (c-index)", "Pooled Test"
"""Names in FLamby's results."""


def main() -> int:
    """Run each strategy with each seed, and print a row of the table as soon as it is known."""
    args = _arguments()
    published = json.loads(args.published.read_text())[DATASET]
    print("| strategy | here | published | difference / deviation | first five seeds |")
    print("|---|---|---|---|---|")
    for name, strategy in STRATEGIES.items():
        found = [
            concordance_of(strategy, seed, args.data) for seed in range(FIRST_SEED, FIRST_SEED + args.seeds)
        ]
        mean, (theirs, deviation) = statistics.mean(found), published[strategy.published][ALL_ROWS]
        print(
            f"| {name} | {mean:.4f} ± {statistics.pstdev(found):.4f} | {theirs:.4f} ± {deviation:.4f} "
            f"| {(mean - theirs) / deviation:+.2f} | {', '.join(f'{value:.3f}' for value in found[:5])} |",
            flush=True,
        )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Survival of patients in six regions.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
