"""Settings of PyTorch for a process that may never import it.

PyTorch takes 400 MB of memory and seconds to import. An aggregator needs it only where it scores models, or where its
method learns something from what the silos send, and which that is may be known only when the method computes.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import threadpoolctl
from typing_extensions import override

from fedsilo.process import THREAD_VARIABLES, importing_for_good

TORCH = "torch"


def is_torch_imported() -> bool:
    """Whether this process has imported PyTorch, or was forked from one that has."""
    return TORCH in sys.modules


def prepare_numerics(threads: int) -> None:
    """Do what `fedsilo.learning.devices.prepare_torch` does: now if torch is imported, or else once it is.

    :param threads: of every numerical library, also one that is loaded later; the environment has no say.
    """
    if is_torch_imported():
        _prepare_torch(threads)
        return
    threadpoolctl.threadpool_limits(threads)  # the BLAS under NumPy
    # Libraries that are loaded later read these.
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _TorchFinder)]
    sys.meta_path.insert(0, _TorchFinder(threads))


def _prepare_torch(threads: int) -> None:
    from fedsilo.learning.devices import prepare_torch

    prepare_torch(threads)


class _TorchFinder(MetaPathFinder):
    """Finds torch as the others do, and prepares it as soon as it is imported, by whomever."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    @override
    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != TORCH:
            return None
        sys.meta_path.remove(self)
        found = find_spec(TORCH)
        if found is not None and found.loader is not None:
            found.loader = _PreparingLoader(found.loader, self._threads)
        return found


class _PreparingLoader(Loader):
    def __init__(self, loader: Loader, threads: int) -> None:
        self._loader = loader
        self._threads = threads

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    @override
    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._loader
        with importing_for_good():
            self._loader.exec_module(module)
        _prepare_torch(self._threads)
