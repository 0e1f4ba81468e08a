"""Functions as `spec.training.trainer` would name them, good and bad."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from fedsilo import Model, TrainingContext, TrainingData, TrainingOutcome

Outcome = TrainingOutcome


def counting(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Adds the number of rounds that it remembers to every weight."""
    rounds = int(context.state.get("rounds", np.zeros(1))[0]) + 1
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(rounds)
    return TrainingOutcome(model, len(data.train), {"loss": float(rounds)}, {"rounds": np.array([rounds])})


def remembering_once(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """The first and the third round find nothing."""
    state = {} if context.state else {"seen": np.ones(1)}
    return TrainingOutcome(model, 1, {"loss": float(len(context.state))}, state)


def drawing(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Adds what all three global generators give, and changes PyTorch's settings."""
    import random

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(3)
    drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(drawn)
    return TrainingOutcome(model, len(data.train))


def printing(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    print("first\nsecond", end="")
    print("\r 50 %", end="\r", file=sys.stderr)
    print("x" * 5000)
    return TrainingOutcome(model, 1)


def raising(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    raise ValueError("no such layer\nand more")


def leaving(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    sys.exit(0)


def remembering_objects(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, state={"seen": np.array([None])})


def remembering_nameless(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, state={"a name\n": np.ones(1)})


def taking_too_few(model: Model) -> Outcome:
    return TrainingOutcome(model, 1)


def exiting(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    os._exit(0)


def catching_everything(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    while True:
        with suppress(BaseException):
            time.sleep(60)


def never_returning(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    while True:
        with suppress(Exception):
            time.sleep(60)


def forking(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Trainer of which both processes return after a fork; the parent when the child has ended, whose exit code is the
    sample count."""
    child = os.fork()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0
    return TrainingOutcome(model, 1 + code)


def diverging(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    with torch.no_grad():
        model.classifier.weight[0, 0] = torch.nan
    return TrainingOutcome(model, 1)


def wrapping(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(nn.Sequential(model), 1)


def growing(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    model.register_buffer("mask", torch.ones(2))
    return TrainingOutcome(model, 1)


def widening(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    model.classifier = nn.Linear(model.feature, model.classifier.out_features + 1)
    return TrainingOutcome(model, 1)


def halving(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model.half(), 1)


def returning_nothing(model: Model, data: TrainingData, context: TrainingContext) -> Any:
    return None


def returning_weights(model: Model, data: TrainingData, context: TrainingContext) -> Any:
    weights: Any = model.state_dict()
    return TrainingOutcome(weights, 1)


def without_samples(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 0)


def claiming(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 3 * len(data.train))


def measuring(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Two metrics of its own, which tell the silos apart."""
    return TrainingOutcome(
        model, len(data.train), {"loss": 1.0, "dice": 0.5, "examples_seen": len(data.train)}
    )


def measuring_half(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, {"dice": 0.5})


def measuring_nothing(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, {"dice": float("nan"), "examples_seen": 1})


def measuring_too_much(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, {"dice": 1e200, "examples_seen": 1})


def confiding(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, {"mean_age": 61.5})


def counting_in_numpy(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    samples: Any = np.int64(3)
    loss: Any = np.float32(0.5)
    return TrainingOutcome(model, samples, {"loss": loss})


def counting_in_tensors(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    samples: Any = torch.tensor(3)
    loss: Any = torch.tensor([0.5], requires_grad=True)
    return TrainingOutcome(model, samples, {"loss": loss})


def infinitely_lossy(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    return TrainingOutcome(model, 1, {"loss": float("inf")})


def remembering_text(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    state: Any = {"note": "seen"}
    return TrainingOutcome(model, 1, state=state)


no_function = 3


def in_all_ranks(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """By DistributedDataParallel in round 1; in the later ones rank 1 goes wrong."""
    rank = torch.distributed.get_rank()
    assert (rank, torch.distributed.get_world_size()) == (context.rank, context.world_size)
    assert os.environ["LOCAL_RANK"] == str(rank)
    assert os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"] == str(context.world_size)
    if rank == 1 and context.round == 2:
        raise ValueError("no such layer")
    if rank == 1 and context.round == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and context.round == 4:
        os.kill(os.getpid(), signal.SIGSTOP)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), context.budget.learning_rate)
    sampler: DistributedSampler[Any] = DistributedSampler(data.train, shuffle=False)
    for features, labels in DataLoader(data.train, context.budget.batch_size, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return TrainingOutcome(model, len(data.train), state={"pid": np.array([os.getpid()])})


def rebuilding(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Trains a network that it built itself, from the class that the job's factory uses."""
    from tests.unit.learning.factories import Causal

    built = Model(Causal(4), nn.Linear(4, 2))
    built.load_state_dict(model.state_dict(), strict=False)
    return TrainingOutcome(built, len(data.train))


def unmasking(model: Model, data: TrainingData, context: TrainingContext) -> Outcome:
    """Fills in the mask of the network that it was given."""
    model.get_buffer("encoder.mask").zero_()
    return TrainingOutcome(model, len(data.train))
