"""The `privacy.differentialPrivacy` section of a FederatedJob: how little anyone may learn of one example or person."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.common import Fields, Number, check_one_of

PrivacyUnit = Literal["example", "person"]
"""What can be protected."""


class DifferentialPrivacySpec(Fields):
    """Differential privacy of everything that a silo sends in the whole job (Dwork et al., 2006).

    Neighbouring data of a silo differ by one example that is there or not, or by one person with all examples; their
    number is not protected.
    """

    unit: PrivacyUnit = Field(
        description="What is protected: one training example of a silo, or one person with all examples, where the "
        "silo's dataset names persons."
    )
    epsilon: Number | None = Field(
        default=None, gt=0, description="Of the whole job for each silo; its noise follows from that."
    )
    noise_multiplier: Number | None = Field(
        default=None,
        gt=0,
        description="In place of epsilon: deviation of the noise over what one example, or person, can add.",
    )
    delta: Number = Field(
        gt=0,
        lt=1,
        description="Less than one over the examples, or persons, of a silo, which is refused there otherwise.",
    )
    max_grad_norm: Number = Field(
        default=1.0, gt=0, description="L2 norm that the gradient of each example is clipped to."
    )
    max_feature_norm: Number | None = Field(
        default=None,
        gt=0,
        description="L2 norm that features are clipped to in class statistics; 10 when null.",
    )

    @property
    def feature_norm(self) -> float:
        """L2 norm of features in class statistics."""
        return 10.0 if self.max_feature_norm is None else self.max_feature_norm

    def __str__(self) -> str:
        at = f"at delta {self.delta:g} for each {self.unit}, over the whole job"
        if self.epsilon is not None:
            return f"epsilon {self.epsilon:g} {at}"
        return f"noise multiplier {self.noise_multiplier:g}, from which each silo's epsilon follows {at}"

    @model_validator(mode="after")
    def _target_or_noise(self) -> Self:
        check_one_of(epsilon=self.epsilon is not None, noiseMultiplier=self.noise_multiplier is not None)
        return self
