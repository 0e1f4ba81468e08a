"""`fedsilo completion` prints what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell that is to complete."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Print the shell's own code; it names every command and option, so that completing starts no Python."""
    from fedsilo.cli import completion_scripts
    from fedsilo.cli.command_description import descriptions
    from fedsilo.cli.commands import whole_parser

    script = {
        "bash": completion_scripts.bash_script,
        "zsh": completion_scripts.zsh_script,
        "fish": completion_scripts.fish_script,
    }
    print(script[args.shell](list(descriptions(whole_parser()))), end="")
    return 0
