"""`python -m fedsilo_agent.trainer.rank` is a further process of a silo's training, started by its trainer.

Tasks come pickled on standard input, from the trainer alone; answers leave on standard output, one JSON object a line.
What anything else prints there goes to the log.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedsilo.api.python_import import error_summary
from fedsilo.errors import FedsiloError
from fedsilo.logs import add_log_arguments, set_log_facts, start_logging
from fedsilo.process import TERMINATED_EXIT_CODE

if TYPE_CHECKING:
    from fedsilo.methods.interface import SiloTask
    from fedsilo.methods.state import State
    from fedsilo.silo.runner import TaskRunner

PR_SET_PDEATHSIG = 1

log = logging.getLogger("fedsilo.trainer")


def main(argv: list[str] | None = None) -> int:
    """Train with the other processes of a silo; returns the exit code."""
    parent = os.getppid()
    end_with_parent(parent)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    parser = argparse.ArgumentParser(description="Train with the other processes of a silo.")
    parser.add_argument("--agent", type=Path, required=True, help="the SiloAgent (YAML)")
    parser.add_argument("--silo", type=Path, required=True, help="the Silo (YAML)")
    parser.add_argument("--data-root", type=Path, required=True, help="where relative dataset paths start")
    parser.add_argument("--rank", required=True, help="rank and number of processes, 1/2")
    add_log_arguments(parser)
    args = parser.parse_args(argv)
    start_logging(args.log_format)
    tasks = queue.SimpleQueue[tuple[dict[str, str], "SiloTask", "State"]]()
    threading.Thread(target=_receive, args=(tasks,), name="tasks", daemon=True).start()
    try:
        runner = _runner(args)
        while True:
            print(json.dumps({"ready": True}), file=answers)
            _run(runner, *tasks.get())
            print(json.dumps({"done": True}), file=answers)
    except BaseException as error:
        _report(error, answers)
        # Not by way of the interpreter's end, which a lost connection may hold up.
        os._exit(error.exit_code if isinstance(error, FedsiloError) else 1)


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent dies, where it can; the end of standard input does it too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(TERMINATED_EXIT_CODE)


def _receive(tasks: queue.SimpleQueue[tuple[dict[str, str], SiloTask, State]]) -> None:
    """Take what the trainer sends, and end this process when it sends no more."""
    stream = os.fdopen(0, "rb")
    try:
        while True:
            tasks.put(pickle.load(stream))
    except EOFError:
        os._exit(TERMINATED_EXIT_CODE)


def _runner(args: argparse.Namespace) -> TaskRunner:
    from fedsilo.api.agent import SiloAgent
    from fedsilo.api.loading import load_document
    from fedsilo.api.silo import Silo
    from fedsilo.freed_memory import keep_freed_memory
    from fedsilo.learning.data_parallel import ProcessGroup
    from fedsilo.learning.devices import prepare_torch, use_gpu
    from fedsilo.methods import registry
    from fedsilo.silo.context import open_context
    from fedsilo.silo.runner import TaskRunner

    agent = load_document(args.agent, SiloAgent).spec
    set_log_facts(namespace=agent.job.namespace, job=agent.job.name, silo=agent.silo.name)
    spec, silo = agent.job.spec, load_document(args.silo, Silo)
    method = registry.bind(spec)
    prepare_torch(spec.training.threads, spec.training.repeatable)
    keep_freed_memory()
    group = ProcessGroup(*map(int, args.rank.split("/")))
    use_gpu(spec.training.device, group.rank)
    return TaskRunner(method, open_context(method.spec, silo, args.data_root, group))


def _run(runner: TaskRunner, environment: dict[str, str], task: SiloTask, private: State) -> None:
    from fedsilo.freed_memory import release_free_memory
    from fedsilo.learning.data_parallel import join, leave
    from fedsilo.learning.devices import pick_device
    from fedsilo.silo.context import seconds_of_trainer

    set_log_facts(round=task.round)
    os.environ |= environment
    spec = runner.context.spec
    join(pick_device(spec.training.device), seconds_of_trainer(spec))
    try:
        runner.run(task, private)
    finally:
        leave()
        release_free_memory()


def _report(error: BaseException, answers: TextIO) -> None:
    from fedsilo.learning.data_parallel import lost_connection

    said: dict[str, Any] = {"at": time.monotonic(), "lost": lost_connection(error)}
    if isinstance(error, FedsiloError):
        said |= {"message": error.marked_text, "reason": error.reason}
    else:
        said |= {"message": error_summary(error, saw_data=True), "reason": "TrainerError"}
        if not said["lost"]:
            log.error("%s", error_summary(error), exc_info=error)
    print(json.dumps(said), file=answers)


if __name__ == "__main__":
    sys.exit(main())
