"""The commands of `fedsilo`, how they are called, and how their errors are told.

Each sub-command is a module of this package with `add_arguments(parser)` and `run(args) -> int`. Only the one
that is called is imported: `fedsilo validate` must answer at once, on a machine without torch.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Container, Sequence
from importlib import import_module
from pathlib import Path

from typing_extensions import override

from fedsilo.cli.command_parser import CommandParser
from fedsilo.cli.help_text import description
from fedsilo.errors import FedsiloError, ManifestInvalid, StorageFailed
from fedsilo.files.durable import is_disk_full
from fedsilo.process import exit_without_collecting, importing_for_good, version
from fedsilo.standard_streams import prepare_standard_streams

COMMANDS = {
    "validate": "check a manifest and say everything that is wrong with it",
    "check": "check whether the data of a manifest's silos fit its job, before anything is trained",
    "run": "run a manifest on this machine, without a cluster",
    "sweep": "run a manifest with many settings and seeds, and compare them",
    "evaluate": "score a trained model on a dataset",
    "export": "write a trained model as ONNX or TorchScript",
    "verify": "check what a model was made from, offline and with public keys alone",
    "methods": "list the methods that jobs can name",
    "completion": "print what completes commands in bash, zsh or fish",
    "silo": "run an institution's own silo, and say what left it",
    "status": "show the jobs of a cluster, or one of them with its silos",
    "why": "say what a job waits for, since when and until when",
    "logs": "print what the pods of a job said",
    "model": "fetch the model of a complete job and check its digest",
    "approve": "approve a job in a silo, or list the jobs that wait for it",
    "refuse": "refuse a job in a silo",
    "silos": "show the institutions of a hub, and why one is not ready",
    "budget": "show what may be learned of the silos' datasets, what is spent, and by which job",
    "invite": "invite an institution outside of the cluster",
    "accept": "accept the key that an institution has registered",
    "revoke": "refuse an institution outside of the cluster from now on",
    "rotate-key": "ask a silo in this cluster for another signing key",
    "leave": "leave the hub that a silo in this cluster follows",
}
"""Sub-command -> its help; the module of the same name implements it."""

LOCAL_PACKAGES = frozenset({"torch", "torchvision", "sklearn", "PIL", "aiohttp", "uvloop", "rich"})
"""Packages that the commands that compute import and the base installation lacks."""

PLUGIN = "kubectl-fedsilo"
"""Name under which kubectl finds the command on PATH."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: those of `fedsilo.errors`, 2 for wrong arguments.

    :param arguments: what was typed after the program's name.
    """
    prepare_standard_streams()
    exit_without_collecting()
    try:
        called = next((argument for argument in arguments if not argument.startswith("-")), "")
        args = _parser({called}).parse_args(arguments)
        code = _run(args)
        sys.stdout.flush()
        return code
    except SystemExit as exit_:  # argparse has printed its help, version or error already
        return exit_.code if isinstance(exit_.code, int) else 0
    except FedsiloError as error:
        from fedsilo.wire.problems import one_line  # not above: it imports what no other command needs

        for line in str(error).split("\n"):
            print(f"fedsilo: {one_line(line)}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as missing:
        if missing.name not in LOCAL_PACKAGES:
            raise
        print(f"fedsilo: this command needs {missing.name}; pip install 'fedsilo[local]'", file=sys.stderr)
        return ManifestInvalid.exit_code
    except OSError as error:
        if not is_disk_full(error):
            raise
        _discard_output()
        where = f"{error.filename}: " if error.filename else ""
        print(f"fedsilo: {where}{error.strerror}; make room and repeat the command", file=sys.stderr)
        return StorageFailed.exit_code


def _run(args: argparse.Namespace) -> int:
    """Run a parsed command. One that looks at a document has the option for what that may import."""
    from fedsilo.api.allowed_imports import looking_at, running

    with looking_at("", args.allow_import) if "allow_import" in args else running():
        return int(args.run(args))


class _ShowVersion(argparse.Action):
    """Prints the version, for which the installed packages are read only then."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version())
        parser.exit()


def _discard_output() -> None:
    """Leave nothing that the end of this process would try to write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the arguments of all commands, each of whose modules is imported."""
    return _parser(COMMANDS)


def _parser(called: Container[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of these commands alone."""
    called_as = "kubectl fedsilo" if Path(sys.argv[0]).name == PLUGIN else "fedsilo"
    parser = CommandParser(prog=called_as, description="Cross-silo federated learning.")
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=description(summary))
        if name in called:
            with importing_for_good():
                module = import_module(f"fedsilo.cli.{name.replace('-', '_')}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser
