"""`fedsilo-aggregator`: run one job's aggregator until there is a model.

Exit codes are those of `fedsilo.errors`: 0 when the model is there, 4 when the job failed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from fedsilo.errors import FedsiloError
from fedsilo.process import exit_with_parent, run_until_done, version
from fedsilo_aggregator.config import load_config


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fedsilo-aggregator", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--config", type=Path, required=True, help="job and silo keys (YAML or JSON)")
    parser.add_argument("--dir", type=Path, required=True, help="durable directory of the job")
    parser.add_argument(
        "--data-root", type=Path, default=Path.cwd(), help="where relative dataset paths start"
    )
    parser.add_argument("--task-key", type=Path, required=True, help="private key that signs tasks (PEM)")
    parser.add_argument("--tls-cert", type=Path, required=True, help="server certificate (PEM)")
    parser.add_argument("--tls-key", type=Path, required=True, help="its private key (PEM)")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")
    parser.add_argument("--port", type=int, default=8443, help="port to listen on")
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input is closed")
    parser.add_argument("--version", action="version", version=version())
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    if args.exit_with_parent:
        exit_with_parent()
    return run_until_done(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    # Imported here so that `--help` and a bad configuration do not wait for torch.
    config = load_config(args.config)

    import uvloop

    from fedsilo_aggregator.opening import open_federation
    from fedsilo_aggregator.service import Service
    from fedsilo_aggregator.serving import serve, server_context
    from fedsilo_aggregator.status import StatusFile, failed_status

    sink = StatusFile(args.dir / "status.json")
    try:
        federation = open_federation(config, args.dir, args.task_key, args.data_root)
    except FedsiloError as error:
        sink.publish(failed_status(error.reason, str(error)))
        raise
    tls = server_context(args.tls_cert, args.tls_key)

    async def serving() -> None:
        await serve(Service(federation, config.keys()), sink, args.host, args.port, tls)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving())
    if federation.failure is not None:
        if federation.current is not None:
            federation.current.forget_failures()
        raise federation.failure


if __name__ == "__main__":
    sys.exit(main())
