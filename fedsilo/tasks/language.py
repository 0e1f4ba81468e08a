"""The language task has sequences of tokens, of which the next token or the class of the whole is learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from fedsilo.api.faults import Finding
from fedsilo.tasks.classes import balanced_weights, class_count_findings, no_classes_findings
from fedsilo.tasks.classification import class_labels, label_scores
from fedsilo.tasks.interface import (
    Answers,
    LearningTask,
    Shape,
    WeightedConfig,
    paired_targets,
    whole_numbers,
)
from fedsilo.tasks.places import (
    UNSCORED_TARGET,
    places_divisor,
    places_loss,
    places_scores,
    require_scored_place,
)

if TYPE_CHECKING:
    from torch import Tensor


class LanguageConfig(WeightedConfig):
    """Settings of the language task."""

    vocabulary: int = Field(ge=2, le=1_000_000, description="number of tokens; they are 0 to vocabulary - 1")
    predict: Literal["next-token", "class"] = Field(
        "next-token",
        description="next-token: the token that follows, at every place; class: one of the whole",
    )


class LanguageTask(LearningTask):
    """Logits (n, length, vocabulary) and the next tokens (n, length); or as classification, from tokens."""

    name = "language"
    summary = "the next token at each place, or one class for each sequence"
    target = "the tokens that follow, or a class"
    per_class = "of a sequence's class: over the sequences of that class; of next tokens it has no meaning"
    metrics = ("accuracy",)
    Config = LanguageConfig
    config: LanguageConfig

    @override
    def check(self) -> list[Finding]:
        """Sequences are needed, and classes where they are learned."""
        found: list[Finding] = []
        shape = list(self.data.input_shape)
        if len(shape) != 1:
            problem = "is no sequence of tokens, which language needs"
            found.append(("spec.data.inputShape", shape, problem, "give [length]"))
        if not self.next_token:
            return [*found, *class_count_findings(self.data, "spec.task.config.predict asks for one")]
        found += no_classes_findings(self.data, "next tokens", "spec.task.config.vocabulary says how many")
        if self.weighs_classes:
            problem = "has no meaning for next tokens"
            found.append(("spec.task.config.classWeights", "balanced", problem, "remove it"))
        return found

    @property
    def next_token(self) -> bool:
        """Whether the next token is learned, and not a class."""
        return self.config.predict == "next-token"

    @property
    @override
    def outputs(self) -> int:
        """One logit for each token or class."""
        return self.config.vocabulary if self.next_token else self.data.class_count

    @property
    @override
    def outputs_field(self) -> str:
        return "spec.task.config.vocabulary" if self.next_token else super().outputs_field

    @property
    @override
    def output_shape(self) -> Shape:
        """[length, vocabulary], or [classes]."""
        return (self.data.input_shape[0], self.outputs) if self.next_token else (self.outputs,)

    @property
    @override
    def single_label(self) -> bool:
        """Where a class is learned."""
        return not self.next_token

    @property
    @override
    def answers(self) -> Answers:
        """Next tokens, or one class."""
        return "tokens" if self.next_token else "class"

    @property
    @override
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @override
    def pairs(self, features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sequences of one token more than the input are both: all but the last, and all but the first."""
        longer = tuple(size + 1 for size in self.data.input_shape)
        if self.next_token and features.shape[1:] == longer:
            return features[:, :-1], features[:, 1:]
        return features, targets

    @override
    def targets(self, values: np.ndarray) -> np.ndarray:
        """(n, length) or (n,), int64; -100 is a place that counts for nothing, such as padding."""
        if not self.next_token:
            return class_labels(values, self.outputs)
        values = paired_targets(
            values, tuple(self.data.input_shape), "the token that follows each of the input's"
        )
        allowed = (values == UNSCORED_TARGET) | ((values >= 0) & (values < self.outputs))
        remedy = f"number tokens from 0 to {self.outputs - 1}, or write -100 where there is none"
        tokens = whole_numbers(values, allowed, "a token of spec.task.config.vocabulary", remedy)
        require_scored_place(tokens, f"{UNSCORED_TARGET}, where no token counts")
        return tokens

    @override
    def class_weights(self, targets: Tensor) -> Tensor | None:
        return balanced_weights(targets.bincount(minlength=self.outputs)) if self.weighs_classes else None

    @override
    def loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy, mean over the places of all sequences, or over the sequences."""
        return places_loss(outputs.movedim(-1, 1), targets, weights)

    @override
    def divisor(self, targets: Tensor, weights: Tensor | None = None) -> Tensor | None:
        """The number of places that are scored, or the sum of their weights."""
        return places_divisor(targets, weights)

    @override
    def scores(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
        if self.next_token:
            return places_scores(outputs.movedim(-1, 1), targets)
        return label_scores(outputs, targets)

    @override
    def predictions(self, outputs: Tensor) -> Tensor:
        """Probabilities (n, length, vocabulary) or (n, classes)."""
        return outputs.float().softmax(dim=-1)
