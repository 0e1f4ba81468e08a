"""The fork server without PyTorch, which takes seconds to import: for tests that start many servers."""

from __future__ import annotations

from fedsilo.local import fork_server

if __name__ == "__main__":
    fork_server.PRELOADED_MODULES = ("cryptography", "numpy.random")
    fork_server.main()
