"""What stands behind the latest scores: how many examples of which silos, and each silo's own where all permit it.

Record, status, tables, model card, CSV and dashboard read scores by silo from here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from fedsilo.api.common import MAX_SILOS, Fields, Integer, Number, Text
from fedsilo.api.figures import finite_figures, main_score
from fedsilo.api.text import comma_separated, count_text

MEAN = "_mean"
"""Ends the name of a metric of which a job reports the mean over its silos, since no sum gives it."""


class SiloScoresStatus(Fields):
    """Scores of the job's model on one silo's validation examples."""

    name: Text = Field(description="Name of the silo; the key of the list.")
    examples: Integer = Field(ge=0, description="Validation examples that they are of.")
    metrics: dict[str, Number] = Field(default_factory=dict, max_length=20, description="Scores by name.")


class ScoresStatus(Fields):
    """What the latest scores are of, where silos score the model."""

    round: Integer = Field(ge=1, description="Round that they are of.")
    examples: Integer = Field(ge=0, description="Validation examples of all silos that scored.")
    scored: Integer = Field(ge=0, description="Silos that scored.")
    asked: Integer = Field(ge=0, description="Silos that were asked to.")
    without: tuple[Text, ...] = Field(
        default=(), max_length=MAX_SILOS, description="Silos that did not, as far as that is known by name."
    )
    withheld: tuple[Text, ...] = Field(
        default=(),
        max_length=MAX_SILOS,
        description="Silos that let their scores be reported only together with the others'.",
    )
    by_silo: tuple[SiloScoresStatus, ...] = Field(
        default=(),
        max_length=MAX_SILOS,
        description="Each silo's own scores, if all that scored permit it; not in sums.",
    )

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> ScoresStatus | None:
        """Read it from a round's record; None where it has no scores by silos."""
        found = record.get("scores")
        return None if found is None else cls._of_document({"round": record["round"], **found})

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> ScoresStatus | None:
        """Read it from a job's status as JSON has it; None where it has none."""
        found = status.get("scores")
        return None if found is None else cls._of_document(found)

    @classmethod
    def _of_document(cls, found: Mapping[str, Any]) -> ScoresStatus:
        # Not validated: what a third party's metrics are called must not end the job.
        by_silo = (
            SiloScoresStatus.model_construct(
                name=_name(silo["name"]),
                examples=silo["examples"],
                metrics=finite_figures(silo.get("metrics") or {}),
            )
            for silo in found.get("bySilo") or ()
        )
        return cls.model_construct(
            round=found["round"],
            examples=found["examples"],
            scored=found["scored"],
            asked=found["asked"],
            without=tuple(map(_name, found.get("without") or ())),
            withheld=tuple(map(_name, found.get("withheld") or ())),
            by_silo=tuple(by_silo),
        )

    @property
    def basis(self) -> str:
        """What the pooled scores are of: `120 validation examples of 2 of 3 silos, without south`."""
        of = (
            f"{self.scored} of {count_text(self.asked, 'silo')}"
            if self.scored < self.asked
            else count_text(self.scored, "silo")
        )
        missing = f", without {comma_separated(self.without)}" if self.without else ""
        return f"{count_text(self.examples, 'validation example')} of {of}{missing}"

    @property
    def refusal(self) -> str | None:
        """Which silos permit no score by name, and what would; None where all do, or where no policy could."""
        if not self.withheld:
            return None
        verb = "permit" if len(self.withheld) > 1 else "permits"
        return (
            f"{comma_separated(self.withheld)} {verb} none by name; policy.scores: PerSilo would, with at least "
            "minSamplesPerUpdate examples"
        )

    @property
    def is_whole(self) -> bool:
        """Whether every silo that was asked scored."""
        return self.scored == self.asked

    def names(self, status: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the silos' metrics, the one first that stands for the job.

        :param status: the job's, for its main score.
        """
        known = dict.fromkeys(name for silo in self.by_silo for name in silo.metrics)
        main = main_score(status)
        first = [name for name in known if main is not None and main[0] in (name, f"{name}{MEAN}")]
        return (*first, *(name for name in known if name not in first))

    def pooled_score(self, name: str, status: Mapping[str, Any]) -> float | None:
        """The score of all silos together beside the silos' own; of a metric that no sum gives, the mean over silos.

        :param status: the job's, for its metrics.
        """
        metrics: Mapping[str, float] = status.get("metrics") or {}
        return metrics.get(name, metrics.get(f"{name}{MEAN}"))

    def rows(self, status: Mapping[str, Any]) -> list[tuple[str, int, list[float | None]]]:
        """Name, examples and figures of each silo and last of `all`, the figures in the order of `names`; none where
        no scores are known by silo.

        :param status: the job's, as for `names`.
        """
        names = self.names(status)
        if not self.by_silo:
            return []
        own = [
            (silo.name, silo.examples, [silo.metrics.get(name) for name in names]) for silo in self.by_silo
        ]
        return [*own, ("all", self.examples, [self.pooled_score(name, status) for name in names])]


def score_rows(history: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each silo of each evaluation: round, silo, examples and metrics, for tables and CSV."""
    for record in history:
        scores = ScoresStatus.of_record(record)
        for silo in () if scores is None else scores.by_silo:
            yield {"round": record["round"], "silo": silo.name, "examples": silo.examples, **silo.metrics}


def _name(silo: str) -> str:
    """The silo's name, without the namespace that it has in records."""
    return silo.rpartition("/")[2]
