"""`fedsilo-aggregator` runs one job's aggregator until there is a model.

Exit codes are those of `fedsilo.errors`: 0 when the model is there, and reported where that was asked for, 4 when the
job failed, 143 after SIGTERM. Started again it continues where it stopped; after its end it reports the same outcome
again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedsilo.errors import FedsiloError, ManifestInvalid
from fedsilo.http.listening import EVERY_ADDRESS
from fedsilo.logs import add_log_arguments, set_log_facts, start_logging
from fedsilo.process import Arguments, exit_on_sigterm, exit_with_parent, run_until_done, version
from fedsilo_aggregator.config import AggregatorConfig, load_config

if TYPE_CHECKING:
    from fedsilo.engine.status_sinks import StatusSink


def main(argv: list[str] | None = None) -> int:
    """Run one job's aggregator; returns the exit code."""
    start_logging()
    exit_on_sigterm()
    return run_until_done(lambda: _run(_arguments(argv)))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="fedsilo-aggregator", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--config", type=Path, required=True, help="job and silo keys (YAML or JSON)")
    parser.add_argument("--dir", type=Path, required=True, help="durable directory of the job")
    parser.add_argument(
        "--data-root", type=Path, default=Path.cwd(), help="where relative dataset paths start"
    )
    parser.add_argument("--task-key", type=Path, required=True, help="private key that signs tasks (PEM)")
    parser.add_argument("--tls-cert", type=Path, required=True, help="server certificate (PEM)")
    parser.add_argument("--tls-key", type=Path, required=True, help="its private key (PEM)")
    parser.add_argument("--host", default=EVERY_ADDRESS, help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=8443, help="port to listen on")
    parser.add_argument(
        "--lost-silos",
        type=Path,
        help="file that says which silos' guards have ended for good (default: none)",
    )
    parser.add_argument("--report", action="store_true", help="report into the FederatedJob's status")
    parser.add_argument("--claim", help="with --report: the PersistentVolumeClaim that holds the directory")
    parser.add_argument(
        "--metrics-port", type=int, help="port of /healthz, /readyz and /metrics (default: none)"
    )
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input is closed")
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    if args.exit_with_parent:
        exit_with_parent()
    # Imported here and below so that `--help` and a bad configuration do not wait for torch.
    config = load_config(args.config)
    set_log_facts(namespace=config.job.metadata.namespace, job=config.job.metadata.name)
    from fedsilo_aggregator.startup import hold_directory

    with hold_directory(args.dir):
        _aggregate(args, config)


def _aggregate(args: argparse.Namespace, config: AggregatorConfig) -> None:
    if args.report:
        try:
            from fedsilo_aggregator.apiserver import reporting
        except ModuleNotFoundError as missing:
            raise ManifestInvalid(
                f"--report needs the package {missing.name}; pip install 'fedsilo[operator]'"
            ) from missing
    from fedsilo.engine import curves
    from fedsilo.engine.status import StatusSource, failed_status
    from fedsilo.engine.status_sinks import CombinedStatusSink, StatusFile
    from fedsilo.engine.tracking import require_tracking, tracking
    from fedsilo.http.event_loop import run_event_loop
    from fedsilo.http.probes import probing
    from fedsilo_aggregator.http import AggregatorService
    from fedsilo_aggregator.lost_silos import LostSilosFile
    from fedsilo_aggregator.metrics import exposition
    from fedsilo_aggregator.rounds import leaving_on_sigterm, serve, server_context
    from fedsilo_aggregator.startup import open_engine

    file = StatusFile(args.dir / "status.json")
    try:
        require_tracking(config.job.spec)
        engine = open_engine(config, args.dir, args.task_key, args.data_root)
    except FedsiloError as error:
        file.publish(failed_status(error.reason, str(error)))
        raise
    drawn = curves.requested_curves(config.job.spec, engine.history, args.dir)
    tracked = tracking(config.job.spec, engine.identity, engine.history, args.dir)
    service = AggregatorService(engine, config.keys())
    tls = server_context(args.tls_cert, args.tls_key)
    lost = LostSilosFile(args.lost_silos)

    async def serving(sinks: Sequence[StatusSink]) -> str | None:
        async with leaving_on_sigterm(), probing(metrics, args.metrics_port):
            if not args.report:
                await serve(service, status, CombinedStatusSink(sinks), args.host, args.port, tls, lost)
                return None
            async with reporting(config.job.metadata, args.claim) as report:
                everywhere = CombinedStatusSink((*sinks, report))
                await serve(service, status, everywhere, args.host, args.port, tls, lost)
                # What became of the outputs is known once they are closed, and the last that is reported.
                for sink in tracking_sinks:
                    await asyncio.to_thread(sink.close)
                report.publish(status.status(""))
                return await report.wait_until_written()

    with tracked as tracking_sinks:
        status = StatusSource(
            engine,
            service.refused,
            service.served,
            outputs=lambda: [sink.output for sink in tracking_sinks],
            hindrances=service.hindrances,
        )
        metrics = exposition(config.job, service, status, args.dir)
        unreported = run_event_loop(serving((file, *drawn, *tracking_sinks)))
    file.publish(status.status(""))
    if engine.failure is not None:
        engine.forget_failures()
        raise engine.failure
    if unreported is not None:
        raise FedsiloError(
            f"job {config.job}: the model is in {args.dir}, and the job's status does not say so: {unreported}; start "
            "the aggregator again to have it reported"
        )


if __name__ == "__main__":
    sys.exit(main())
