"""The programs of a federation as the benchmark starts them: real aggregator and guards, and light trainers.

    python -m benchmarks.transport.roles aggregator RECORDS STEPS ARGUMENT...
    python -m benchmarks.transport.roles guards RECORDS STEPS WORKDIR PROCESSES NAME...
    python -m benchmarks.transport.roles trainers RECORDS STEPS WORKDIR PROCESSES NAME...

Aggregator and guards run their own entry points. A light trainer is the real loop over the real volume, with a
runner that answers every task at once with the tensors that were broadcast. It announces its model, which lets
the first round begin, when the file `start` is in the run's directory.

Guards and trainers are forked, a process for each or for several of them, from a process that has imported what they
need, so that a run of many begins soon.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.transport.processes import START, fork_each, shared_out
from benchmarks.transport.steps import Recorder
from fedsilo.transforms.plan import JobPlan

if TYPE_CHECKING:
    from fedsilo.methods.interface import Reply, SiloTask
    from fedsilo.methods.state import State
    from fedsilo.silo.volume import Volume
    from fedsilo_agent.trainer.mailbox import Mailbox

SAMPLES = 100
POLL_SECONDS = 0.01


def main(arguments: list[str]) -> int:
    """Run one role, aggregator, guards or trainers, and return the exit code."""
    role, records, steps, *rest = arguments
    recorder = Recorder(role, Path(records))
    if role == "aggregator":
        return aggregate(recorder, steps, rest)
    directory, processes, *names = rest
    work = {"guards": guard, "trainers": train}[role](Path(directory), recorder, steps)
    return fork_each(shared_out(names, int(processes)), work)


def aggregate(recorder: Recorder, steps: str, arguments: list[str]) -> int:
    """Run the aggregator with its steps recorded, and return its exit code."""
    from fedsilo_aggregator.__main__ import main as aggregator

    recorder.install(steps)
    try:
        return aggregator(arguments)
    finally:
        recorder.write()


def guard(directory: Path, recorder: Recorder, steps: str) -> Callable[[list[str]], None]:
    """What makes a guard of a silo's name."""
    from fedsilo_agent.guard import __main__ as program
    from fedsilo_agent.guard.report import ReceiptsReport

    recorder.install(steps)

    def work(names: list[str]) -> None:
        (name,) = names
        volume = directory / "silos" / name
        own = volume / "guard"
        arguments = ["--agent", str(own / "agent.json"), "--silo", str(own / "silo.json")]
        arguments += [
            "--policy",
            str(own / "silo.json"),
            "--volume",
            str(volume),
            "--key",
            str(own / "key.pem"),
        ]
        try:
            if threading.current_thread() is threading.main_thread():
                if code := program.main(arguments):
                    raise SystemExit(code)
            else:  # the entry point sets a handler of signals, which only the main thread may
                program._run(program._arguments(arguments), ReceiptsReport())
        finally:
            recorder.write()

    return work


class Echo:
    """Stands in for a trainer and answers at once: with the broadcast model where training is asked for, else with
    scores.

    Its smallest tensor is changed, for the mean of equal models is the same file, and nobody fetches that again.
    """

    def run(self, task: SiloTask, private: State) -> Reply:
        """Reply to a task at once, without any training."""
        from fedsilo.methods.interface import EVALUATE, Reply

        del private
        if task.step == EVALUATE:
            return Reply(samples=SAMPLES, metrics={"loss": 1.0, "accuracy": 0.5})
        model = dict(task.trees["model"])
        smallest = min(model, key=lambda name: model[name].nbytes)
        return Reply(
            {**model, smallest: model[smallest] + model[smallest].dtype.type(1)}, SAMPLES, {"loss": 1.0}
        )


def train(directory: Path, recorder: Recorder, steps: str) -> Callable[[list[str]], None]:
    """What makes a light trainer of a silo's name."""
    from fedsilo.api.agent import SiloAgent
    from fedsilo.api.loading import load_document
    from fedsilo.methods import registry
    from fedsilo.silo.personal import PersonalModel
    from fedsilo.silo.volume import Volume
    from fedsilo_agent.trainer.loop import Trainer
    from fedsilo_agent.trainer.mailbox import Mailbox

    recorder.install(steps)

    def work(names: list[str]) -> None:
        (name,) = names
        volume = Volume(directory / "silos" / name)
        agent = load_document(volume.root / "agent.json", SiloAgent).spec
        method = registry.bind(agent.job.spec)
        mailbox = Mailbox(volume, JobPlan(method).exchanges)
        _announce(directory, volume, mailbox, agent.job.spec.data.class_count)
        try:
            Trainer(mailbox, Echo(), PersonalModel(volume.state, method, str(agent.silo))).run()  # type: ignore[arg-type]
        finally:
            recorder.write()

    return work


def _announce(directory: Path, volume: Volume, mailbox: Mailbox, classes: int) -> None:
    """Say what the model looks like, as the aggregator has it, once the run may begin."""
    from fedsilo.wire import ModelSignature, open_blob

    while not (directory / START).exists():
        time.sleep(POLL_SECONDS)
    (path,) = (directory / "aggregator" / "blobs").iterdir()
    with open_blob(path) as model:
        tensors = tuple(model.specs.values())
    volume.prepare_trainer()
    mailbox.announce(ModelSignature(tensors, classes, tensors[-2].shape[1]), "a light trainer")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
