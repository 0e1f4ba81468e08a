"""fedsilo: one model from institutions that may not pool their data.

    model = fedsilo.load_model("model.safetensors")

opens a model that a federation produced. Importing the package itself imports no torch.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsilo.learning.saved import load_model

__all__ = ["__version__", "load_model"]

__version__ = version("fedsilo")


def __getattr__(name: str) -> Any:
    # Operator, guard and command line import fedsilo on machines without torch.
    if name == "load_model":
        from fedsilo.learning.saved import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
