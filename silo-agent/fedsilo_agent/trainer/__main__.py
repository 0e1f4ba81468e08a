"""`fedsilo-trainer` answers one job's tasks with one silo's data, until the job ends.

It waits for tasks as long as there are none: the guard may start later, and its inbox be empty or read-only. It ends
with 0 when the guard says that the job is over, whether there is a model or not.

Nothing heavy is imported before the process has taken its own network away: namespaces are per thread, and
numerical libraries start threads when they are imported. On one machine they were imported before the fork, and set to
start none (`fedsilo.local.fork_server`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedsilo.errors import DataInvalid, FedsiloError, MethodError, PolicyRefused, quoted_value
from fedsilo.logs import add_log_arguments, set_log_facts, start_logging
from fedsilo.process import (
    Arguments,
    exit_on_sigterm,
    exit_with_parent,
    importing_for_good,
    run_until_done,
    version,
)
from fedsilo.silo.volume import Volume
from fedsilo_agent.trainer.isolation import ISOLATED_MESSAGE, TrainerDirectory, isolate

if TYPE_CHECKING:
    from fedsilo.api.silo import Silo
    from fedsilo.methods.method import Method
    from fedsilo.silo.runner import TaskRunner
    from fedsilo_agent.trainer.mailbox import Mailbox
    from fedsilo_agent.trainer.ranks import RankGroup

SECONDS_TO_INTERRUPT = 10.0

log = logging.getLogger("fedsilo.trainer")


def main(argv: list[str] | None = None) -> int:
    """Run one silo's trainer for one job; returns the exit code."""
    start_logging()
    exit_on_sigterm()
    return run_until_done(lambda: _run(_arguments(argv)))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="fedsilo-trainer", description="Train one silo's part of one job.")
    parser.add_argument("--agent", type=Path, required=True, help="the SiloAgent (YAML)")
    parser.add_argument("--silo", type=Path, required=True, help="the Silo (YAML)")
    parser.add_argument("--volume", type=Path, required=True, help="directory shared with the guard")
    parser.add_argument(
        "--data-root", type=Path, default=Path.cwd(), help="where relative dataset paths start"
    )
    parser.add_argument("--isolate", action="store_true", help="enter an empty network namespace first")
    parser.add_argument(
        "--hide", type=Path, action="append", default=[], help="with --isolate: one more directory not to see"
    )
    parser.add_argument(
        "--home",
        type=Path,
        help="with --isolate: directory to see read-only, with no other volume than one's own",
    )
    parser.add_argument(
        "--require-isolation", action="store_true", help="end where --isolate is not permitted"
    )
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input is closed")
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    volume = Volume(args.volume)
    volume.prepare_trainer()
    hidden = [volume.guard, volume.audit, *args.hide]
    home = TrainerDirectory(args.home, volume.root.parent.parent, volume.root) if args.home else None
    isolation = isolate(hidden, volume.inbox, home) if args.isolate else "isolated by the cluster"
    if args.exit_with_parent:
        exit_with_parent()
    if args.require_isolation and isolation != ISOLATED_MESSAGE:
        raise _not_isolated(volume, isolation)
    mailbox, runner = _mailbox_and_runner(args, volume, isolation)
    from fedsilo.silo.personal import PersonalModel
    from fedsilo_agent.trainer.loop import Trainer

    context = runner.context
    mailbox.announce(context.signature, isolation, context.schema, context.findings)
    log.info("ready: %d training and %d validation examples; %s", *_sizes(runner), isolation)
    personal = PersonalModel(volume.state, runner.method, runner.context.silo)
    ranks = _ranks(args, mailbox, runner)
    try:
        held_by = runner.context.spec.training.trainer and "spec.training.trainer"
        Trainer(
            mailbox, ranks or runner, personal, _limit(runner), held_by or "training in several processes"
        ).run()
    except FedsiloError as error:
        mailbox.give_up(error.reason, error.redacted_text)
        raise
    finally:
        if ranks is not None:
            ranks.close()


def _not_isolated(volume: Volume, found: str) -> PolicyRefused:
    """Report to the guard that no code of a job runs here."""
    from fedsilo_agent.trainer.mailbox import Mailbox

    refusal = PolicyRefused(
        f"trainer: {found}; permit this user network and mount namespaces (sysctl user.max_user_namespaces, and none "
        "of RestrictNamespaces in its unit), since code of a job must not run next to data with a network"
    )
    Mailbox(volume, ()).give_up(refusal.reason, refusal.redacted_text)
    return refusal


def _mailbox_and_runner(
    args: argparse.Namespace, volume: Volume, isolation: str
) -> tuple[Mailbox, TaskRunner]:
    """Read job and data; their faults are reported to the guard, so that no round waits for this silo.

    No code of the job runs before its method is bound.
    """
    with importing_for_good():
        from fedsilo.api.agent import SiloAgent
        from fedsilo.api.loading import load_document
        from fedsilo.api.silo import Silo
        from fedsilo.freed_memory import keep_freed_memory
        from fedsilo.learning.data_parallel import ProcessGroup
        from fedsilo.learning.devices import prepare_torch
        from fedsilo.methods import registry
        from fedsilo.silo.context import open_context
        from fedsilo.silo.network_cache import NetworkCache
        from fedsilo.silo.runner import TaskRunner
        from fedsilo.silo.secret import Secret
        from fedsilo.transforms.plan import JobPlan
        from fedsilo_agent.trainer.mailbox import Mailbox

    mailbox = Mailbox(volume, ())
    mailbox.clear()
    try:
        agent = load_document(args.agent, SiloAgent).spec
        set_log_facts(namespace=agent.job.namespace, job=agent.job.name, silo=agent.silo.name)
        spec = agent.job.spec
        silo = load_document(args.silo, Silo)
        method = registry.bind(spec)
        prepare_torch(spec.training.threads, spec.training.repeatable)
        keep_freed_memory()
        count = _process_count(method, silo)
        context = open_context(method.spec, silo, args.data_root, ProcessGroup(0, count))
        # A reply is on the disk before the next task.
        context = replace(context, kept_network=NetworkCache(), secret=Secret(volume.secret))
        return Mailbox(volume, JobPlan(method).exchanges), TaskRunner(method, context)
    except FedsiloError as error:
        if isinstance(error, DataInvalid):
            _announce_unusable(mailbox, isolation, error, spec.data.check is not None)
        mailbox.give_up(error.reason, error.redacted_text)
        raise
    except SystemExit as left:
        # With 0 it would look like a trainer whose job is over, for which the round would wait until its deadline.
        failure = MethodError(
            f"the method or the model called sys.exit({quoted_value(repr(left.code))}); let it raise an error instead"
        )
        mailbox.give_up(failure.reason, failure.redacted_text)
        raise failure from left


def _announce_unusable(mailbox: Mailbox, isolation: str, error: DataInvalid, asked: bool) -> None:
    """Say what the data are called all the same, or that they cannot be read, so that the job names all silos' faults.

    :param asked: whether the job asks how the data are.
    """
    from fedsilo.data.numbering import SchemaMismatch
    from fedsilo.readiness.announce import unreadable_findings

    if isinstance(error, SchemaMismatch):
        mailbox.announce(None, isolation, error.schema, () if asked else None)
    elif asked:
        mailbox.announce(None, isolation, None, unreadable_findings(error))


def _process_count(method: Method, silo: Silo) -> int:
    """How many processes train; one where the method says so."""
    from fedsilo.learning.devices import process_count

    count = process_count(method.spec.training.device, silo.spec.agent)
    if count > 1 and not method.training.data_parallel:
        log.info("method %s trains in one process of %d", method.name, count)
        return 1
    return count


def _ranks(args: argparse.Namespace, mailbox: Mailbox, runner: TaskRunner) -> RankGroup | None:
    """The other processes of the training, where there are any."""
    if runner.context.group.world_size == 1:
        return None
    from fedsilo.silo.context import seconds_of_trainer
    from fedsilo_agent.trainer.ranks import RankGroup

    def abort_trainer(failure: FedsiloError) -> None:
        log.error("%s", failure)
        mailbox.give_up(failure.reason, failure.redacted_text)
        os._exit(failure.exit_code)

    arguments = ["--agent", str(args.agent), "--silo", str(args.silo), "--data-root", str(args.data_root)]
    ranks = RankGroup(
        runner,
        [*arguments, "--log-format", args.log_format],
        seconds_of_trainer(runner.context.spec),
        abort_trainer,
    )
    log.info("%d processes share every batch", runner.context.group.world_size)
    return ranks


def _limit(runner: TaskRunner) -> float | None:
    """Seconds of a task with the job's own training, or with several processes, which wait for each other: the limit
    of both, and time in which to be interrupted.

    Both are over before the round's deadline, so that the round says why it failed.
    """
    from fedsilo.silo.context import seconds_of_trainer

    spec = runner.context.spec
    if spec.training.trainer is None and runner.context.group.world_size == 1:
        return None
    own, deadline = seconds_of_trainer(spec), spec.participation.round_deadline.seconds
    return own + min(SECONDS_TO_INTERRUPT, (deadline - own) / 2)


def _sizes(runner: TaskRunner) -> tuple[int, int]:
    return len(runner.context.train), len(runner.context.validation)


if __name__ == "__main__":
    sys.exit(main())
