"""Settings of the statistics."""

from __future__ import annotations

from pydantic import Field

from fedsilo.methods.components.feature_statistics import Edges
from fedsilo.methods.interface import MethodConfig


class HistogramConfig(MethodConfig):
    """A feature whose values are counted in parts."""

    feature: int = Field(ge=0, description="Column of a table or channel of images, from 0.")
    edges: tuple[float, ...] = Field(
        min_length=1,
        max_length=1000,
        description="Rising; values below the first and from the last on count too.",
    )


class StatisticsConfig(MethodConfig):
    """What is asked beside count, missing values, mean and variance of every feature."""

    histograms: tuple[HistogramConfig, ...] = Field(
        default=(),
        max_length=1000,
        description="Features whose values are counted between edges: {feature: 0, edges: [0, 10, 20]} [fedsilo].",
    )

    @property
    def edges(self) -> Edges:
        """Feature -> edges of its histogram."""
        return {histogram.feature: histogram.edges for histogram in self.histograms}
