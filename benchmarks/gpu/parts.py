"""The parts of a run, the most important first."""

from __future__ import annotations

from benchmarks.gpu.cases import Goal, Part, Size

IN_ALL: dict[Size, float] = {"full": 480, "quick": 180, "reduced": 240}
"""Seconds of a whole run; the last part has what the others leave."""

PARTS = (
    Part(
        "correctness",
        "Correctness",
        "benchmarks.gpu.correctness",
        {"full": 60, "quick": 40, "reduced": 60},
        (
            Goal("float32 from the CPU", most=1e-3),
            Goal("bfloat16 from the CPU", most=0.2),
            Goal("float16 from the CPU", most=0.05),
            Goal("model from the CPU's", most=1e-3),
        ),
    ),
    Part(
        "training",
        "Local training against a plain PyTorch loop",
        "benchmarks.gpu.training",
        {"full": 55, "quick": 30, "reduced": 60},
        (Goal("ratio", least=0.95),),
    ),
    Part(
        "clients",
        "Several clients on one device",
        "benchmarks.gpu.clients",
        {"full": 90, "quick": 35, "reduced": 60},
        (Goal("batched over one by one", least=2),),
    ),
    Part(
        "private",
        "Differential privacy of single examples",
        "benchmarks.gpu.private",
        {"full": 20, "quick": 12, "reduced": 30},
        (Goal("passes for single examples in the former", most=0),),
    ),
    Part(
        "aggregation",
        "Aggregation and scoring",
        "benchmarks.gpu.aggregation",
        {"full": 20, "quick": 12, "reduced": 30},
    ),
    Part(
        "ranks",
        "Several processes of one silo",
        "benchmarks.gpu.ranks",
        {"full": 25, "quick": 15, "reduced": 60},
        (Goal("from one process", most=1e-3),),
    ),
    Part(
        "table",
        "One cell of a table at the paper's scale",
        "benchmarks.gpu.table",
        {"full": 300, "quick": 60, "reduced": 60},
    ),
)

BY_NAME = {part.name: part for part in PARTS}
