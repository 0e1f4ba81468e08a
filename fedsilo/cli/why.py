"""`fedsilo why` says what a job waits for, in one paragraph."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from datetime import datetime

from fedsilo.cli.cluster.federation import AGENTS, get_job, of_job
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.cli.cluster.paragraph import paragraph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, and where it is."""
    parser.add_argument("job", metavar="JOB", help="name of the job")
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the paragraph on what the job waits for.

    :raises ManifestInvalid: when there is no such job.
    """
    kubectl = Kubectl.of(args)
    job = get_job(kubectl, args.job)
    agents, _ = of_job(kubectl, AGENTS, job)
    text = paragraph(job, agents, datetime.now().astimezone())
    print(wrap_lines(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)
    return 0


def wrap_lines(text: str, width: int) -> str:
    """Lines of a terminal's width. A command between backquotes stays on one, to be copied whole."""
    joint = "\0"
    held = re.sub(r"`[^`]+`", lambda command: command[0].replace(" ", joint), text)
    return textwrap.fill(held, width, break_long_words=False, break_on_hyphens=False).replace(joint, " ")
