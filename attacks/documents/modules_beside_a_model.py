"""Files beside an honest model that have the names of modules: of Python's, of packages that are installed, of those
that may be, and of a package that offers methods.

By: somebody whose directory a person opens a model in.

Must: opened as ever; none of these files is imported.
"""

from __future__ import annotations

from attacks.handed_over import OPENING_COMMANDS, HandedOver

RUNS_ONCE = True

MODULES = (
    *("builtins", "colorsys", "encodings", "json", "sitecustomize", "usercustomize", "conftest", "setup"),
    *(
        "numpy",
        "torch",
        "yaml",
        "safetensors",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "mlflow",
        "pandas",
        "opacus",
    ),
    *(
        "torchmetrics",
        "torchvision",
        "matplotlib",
        "pyarrow",
        "fedsilo",
        "fedsilo_agent",
        "model",
        "networks",
    ),
)

METADATA = "Metadata-Version: 2.1\nName: beside\nVersion: 1\n"
ENTRY_POINTS = (
    "[fedsilo.methods]\nfedavg = networks:FedAvg\nbeside = networks:Method\n\x1b[2J = networks:Method\n"
)


def attack(target: HandedOver) -> None:
    at = target.copy()
    for module in MODULES:
        (at / f"{module}.py").write_text(target.planted_code)
    package = at / "beside-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(METADATA)
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    for command in (*OPENING_COMMANDS, ("methods",), ("methods", "fedavg")):
        target.expect_opened(*command, at=at)
