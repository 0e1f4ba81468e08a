"""The statistics in a silo."""

from __future__ import annotations

from fedsilo.methods.components.feature_statistics import feature_statistics
from fedsilo.methods.interface import Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.statistics.config import StatisticsConfig


def state_statistics(config: StatisticsConfig) -> SiloStep:
    """A step that sends statistics of the training examples, with the job's histograms."""

    def step(silo: SiloContext, task: SiloTask, private: State) -> Reply:
        return feature_statistics(silo, config.edges)

    return step
