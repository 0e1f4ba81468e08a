"""`fedsilo-guard` answers one job's tasks for one silo, with its key, until the job ends.

It may start long before the aggregator and outlive it: it tries again until it gets an answer. It ends when the
aggregator says that the job is over, with 0 whether there is a model or not: that is the job's success, not the
guard's. An aggregator that is gone for good cannot say so; the guard's supervisor ends it then.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fedsilo.api.agent import SiloAgent
from fedsilo.api.loading import load_document
from fedsilo.api.silo import Silo
from fedsilo.http.event_loop import run_event_loop
from fedsilo.http.probes import probing
from fedsilo.logs import add_log_arguments, set_log_facts, start_logging
from fedsilo.process import Arguments, exit_on_sigterm, exit_with_parent, run_until_done, version
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.volume import Volume
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient
from fedsilo_agent.guard.current_policy import PresentPolicy
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.metrics import exposition
from fedsilo_agent.guard.own_key import signing_key
from fedsilo_agent.guard.report import ReceiptsReport
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.guard.task_source import decline


def main(argv: list[str] | None = None) -> int:
    """Run one silo's guard for one job; returns the exit code."""
    start_logging()
    exit_on_sigterm()
    report = ReceiptsReport()
    return run_until_done(lambda: _run(_arguments(argv), report), facts=report.facts)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="fedsilo-guard", description="Guard one silo's part of one job.")
    parser.add_argument("--agent", type=Path, required=True, help="the SiloAgent (YAML)")
    parser.add_argument("--silo", type=Path, required=True, help="the Silo (YAML), with the silo's policy")
    parser.add_argument(
        "--policy", type=Path, help="the Silo as it is now, read again before anything leaves (default: none)"
    )
    parser.add_argument("--volume", type=Path, required=True, help="directory shared with the trainer")
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        help="the silo's private signing key (PEM); beside it may be others",
    )
    parser.add_argument(
        "--ledgers",
        type=Path,
        help="directory in which policy.privacyBudget is kept, over all jobs (default: none)",
    )
    parser.add_argument(
        "--proxy", type=Path, help="file with the proxy's address (default: HTTPS_PROXY of the environment)"
    )
    parser.add_argument(
        "--metrics-port", type=int, help="port of /healthz, /readyz and /metrics (default: none)"
    )
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input is closed")
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    return parser.parse_args(argv)


def _run(args: argparse.Namespace, report: ReceiptsReport) -> None:
    start_logging(args.log_format)
    if args.exit_with_parent:
        exit_with_parent()
    agent = load_document(args.agent, SiloAgent)
    set_log_facts(namespace=agent.spec.job.namespace, job=agent.spec.job.name, silo=agent.spec.silo.name)
    silo = load_document(args.silo, Silo)
    check = TaskCheck(agent, silo, PresentPolicy(args.policy, silo) if args.policy else None)
    volume = Volume(args.volume)
    volume.prepare_guard()
    if args.proxy is not None:
        take_proxy(args.proxy)
    trust = agent.spec.trust
    key = signing_key(args.key, trust.public_key)
    peer = AggregatorAddress(trust.url, trust.ca_certificate, agent.spec.job.uid, check.reference, key)

    async def guarding() -> None:
        async with (
            AggregatorClient(peer) as client,
            probing(exposition(agent, volume, client), args.metrics_port),
        ):
            try:
                guard = Guard(GuardedJob(check, volume, key, client, report, args.ledgers))
            except AuditBroken as broken:
                await decline(client, check, broken)
                raise
            await guard.run()

    run_event_loop(guarding())


def take_proxy(path: Path) -> None:
    """Use the proxy that a file names: trainers are forked from the same process, whose environment has none."""
    os.environ["https_proxy"] = path.read_text().strip()


if __name__ == "__main__":
    sys.exit(main())
