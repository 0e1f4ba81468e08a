"""A first step in which silos state how many samples they have and send nothing, for methods that count by size."""

from __future__ import annotations

from fedsilo.api.common import MAX_SILOS
from fedsilo.methods.components.settings import number
from fedsilo.methods.interface import Phase, Reply, SiloContext, SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State
from fedsilo.methods.step import Step

SIZES = "sizes"
"""Name of the step, and of its phase."""

PHASE = Phase(SIZES, 1, SIZES, everyone=True)

MOST_EXAMPLES = 2**53
"""Largest size that a silo may state: from there on a float64 does not tell one number from the next."""

STEP = Step(samples=(1, MOST_EXAMPLES))
"""What a silo may state: a silo without examples has no share."""

SHARE = "share"
"""Setting of a silo's later tasks: v_k."""


def state_size(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Reply that states only the silo's number of training examples n_k."""
    return Reply(samples=len(silo.train))


def with_sizes(state: State, updates: Updates) -> State:
    """The state with the value `samples`: what each silo stated."""
    return state.with_values(samples={silo: updates.samples(silo) for silo in updates.silos})


def size_of(state: State, silo: str) -> float:
    """v_k = n_k over the mean of the sizes that silos stated; 1 for one that stated none."""
    samples = state.values["samples"]
    return float(samples[silo] * len(samples) / sum(samples.values())) if silo in samples else 1.0


def share_of(task: SiloTask) -> float:
    """v_k as the task says it: at most the number of silos, and above 0, since no size is.

    :raises MethodError: it says what no sizes give.
    """
    return number(task, SHARE, 1 / MOST_EXAMPLES, MAX_SILOS)
