"""Entry point of the `fedsilo` command, which is also kubectl's plugin: `kubectl fedsilo` runs `kubectl-fedsilo`.

Whatever takes time to import is imported where an interruption is caught, so that it is one line from the start.
"""

from __future__ import annotations

import sys

_INTERRUPTED_EXIT_CODE = 130
_REPEAT_SECONDS = 0.02


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: those of `fedsilo.errors`, 2 for wrong arguments, 130 for SIGINT."""
    if argv is None:
        sys.unraisablehook = _repeat_interruption
    try:
        from fedsilo.cli.commands import run_command

        return run_command(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        if argv is None:
            _block_interruptions()
        print("fedsilo: interrupted", file=sys.stderr)
        return _INTERRUPTED_EXIT_CODE


def _repeat_interruption(ignored: sys.UnraisableHookArgs, /) -> None:
    """Raise an interruption once more if Python ignores it, as it does in a destructor and while it imports."""
    if ignored.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(ignored)
        return
    import signal
    import threading

    # Not at once: here it would be ignored again. And of this thread, so that what it waits for ends.
    this = threading.get_ident()
    again = threading.Timer(_REPEAT_SECONDS, signal.pthread_kill, [this, signal.SIGINT])
    again.daemon = True
    again.start()


def _block_interruptions() -> None:
    """Let no signal interfere with the end of this process, neither a second one nor the first.

    Python kills itself with SIGINT in place of exiting if the interruption has passed through `exec`, as it does where
    a library is being imported; blocked, that signal leaves the exit code that it stands for.
    """
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory, whose files are no part of this program
    sys.exit(main())
