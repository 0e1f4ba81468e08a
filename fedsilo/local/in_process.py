"""Run a manifest in this process: the simulation, with the working directory and display of any local run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from fedsilo.api.loading import JobManifest
from fedsilo.engine import curves
from fedsilo.engine.status import StatusSource, failed_status
from fedsilo.engine.status_sinks import CombinedStatusSink, StatusFile
from fedsilo.engine.tracking import require_tracking, tracking
from fedsilo.errors import FedsiloError, MethodError
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.display import Display
from fedsilo.local.progress import RunOutcome, RunProgress
from fedsilo.local.workdir import RunDirectory
from fedsilo.methods import registry
from fedsilo.methods.state import State
from fedsilo.process import importing_for_good
from fedsilo.silo.personal import PersonalModel
from fedsilo.simulation.execution import ExecutionPlan

if TYPE_CHECKING:
    from fedsilo.simulation.job import Simulation

log = logging.getLogger("fedsilo.run")

STATUS_SECONDS = 0.25
"""Time between two statuses: each names every silo, and answers may come by the hundred in a second."""


def run_in_process(
    federation: JobManifest,
    workdir: RunDirectory,
    data_root: Path,
    display: Display,
    execution: ExecutionPlan,
    check: Callable[[], None] = lambda: None,
) -> RunOutcome:
    """Run the job to its end; other arguments, outcome and errors as those of `fedsilo.local.run.run_processes`."""
    began = time.monotonic()
    space = DiskSpaceCheck(workdir.root, log.warning, check)
    with workdir.hold_directory(federation, resume=False, space=space, in_process=True) as uid:
        for directory in (workdir.aggregator, workdir.logs):
            space.wait(partial(directory.mkdir, exist_ok=True))
        starting = "loading all silos' data into one process; nothing will be sent, signed or kept for later"
        progress = RunProgress(federation, workdir, starting=starting)
        log_file = space.wait(lambda: LogFile(workdir.logs / "run.log"))
        with _log_to_file(log_file), display.showing(progress):
            space.say, space.check = progress.note, partial(_show_and_check, display, progress, check)
            opening = partial(_open, progress, uid, data_root, execution, space)
            error = _run(opening, progress, display, check)
            space.wait(workdir.collect)
            space.wait(lambda: workdir.write_scores(progress.rounds))
        document = progress.outcome(time.monotonic() - began)
        return RunOutcome(
            document, error.exit_code if error else 0, progress.exchanged_bytes, progress.rounds
        )


class LogFile(logging.FileHandler):
    """The log of the run."""

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Leave a line out that cannot be written: a full disk is no reason to show a traceback."""


@contextmanager
def _log_to_file(handler: LogFile) -> Iterator[None]:
    """Write log records to a file, and leave the caller's logging as it is."""
    ours = logging.getLogger("fedsilo")
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    level = ours.level
    ours.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # of lines that a full disk did not take
            handler.close()
        ours.setLevel(level)


def _show_and_check(display: Display, progress: RunProgress, check: Callable[[], None]) -> None:
    display.update(progress)
    check()


def _open(
    progress: RunProgress, uid: str, data_root: Path, execution: ExecutionPlan, space: DiskSpaceCheck
) -> Simulation:
    # Importing torch takes a second or two, during which the user should already see something.
    with importing_for_good():
        from fedsilo.simulation.simulate import open_simulation

    require_tracking(progress.federation.job.spec)
    directory = progress.workdir.aggregator
    return open_simulation(progress.federation, data_root, directory, execution, uid, space.wait)


def _run(
    opening: Callable[[], Simulation], progress: RunProgress, display: Display, check: Callable[[], None]
) -> FedsiloError | None:
    """Run the job and report its progress; returns its failure, if it fails."""
    file = StatusFile(progress.workdir.aggregator / "status.json")
    try:
        with closing(opening()) as simulation:
            try:
                _play(simulation, file, progress, display, check)
            finally:
                _keep_personal_models(simulation, progress.federation, progress.workdir)
            return simulation.failure
    except FedsiloError as error:
        failure = error
    except SystemExit as left:
        log.exception("job code ended the process")
        failure = MethodError(
            f"a method or a model called sys.exit({left.code!r}); let it raise an error instead"
        )
    except Exception as error:
        log.exception("this is a defect of fedsilo; please report it")
        failure = FedsiloError(f"{type(error).__name__}: {error}; please report it, with the log of the run")
    status = failed_status(failure.reason, str(failure))
    file.publish(status)
    progress.set(status.document(), progress.rounds)
    return failure


def _keep_personal_models(simulation: Simulation, federation: JobManifest, workdir: RunDirectory) -> None:
    """Leave each silo's own model where its trainer would have left it."""
    method = registry.bind(federation.job.spec)
    for silo in federation.silos:
        state = workdir.volume(silo.metadata.name).state
        model = PersonalModel(state, method, str(silo))
        model.publish(simulation.private.get(str(silo), State()))


def _play(
    simulation: Simulation,
    file: StatusFile,
    progress: RunProgress,
    display: Display,
    check: Callable[[], None],
) -> None:
    due = 0.0
    spec, directory = progress.federation.job.spec, progress.workdir.aggregator
    drawn = curves.requested_curves(spec, simulation.history, directory)
    with tracking(spec, simulation.identity, simulation.history, directory) as tracked:
        sinks = CombinedStatusSink((file, *drawn, *tracked))
        source = StatusSource(simulation, {}, {}, outputs=lambda: [sink.output for sink in tracked])

        def report() -> None:
            present = source.status("")
            sinks.publish(present)
            progress.set(present.document(), simulation.history())
            display.update(progress)

        for _ in simulation.run():
            check()
            if time.monotonic() >= due:
                report()
                due = time.monotonic() + STATUS_SECONDS
        report()
    file.publish(source.status(""))
