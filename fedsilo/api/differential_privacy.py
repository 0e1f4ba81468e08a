"""The `privacy.differentialPrivacy` section of a FederatedJob: how little anyone may learn of what a silo has."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from fedsilo.api.common import Fields, Number, check_one_of, invalid_value
from fedsilo.api.faults import ABSENT_VALUE
from fedsilo.privacy.mechanism import LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER

PrivacyUnit = Literal["example", "person"]
"""What a budget may be of."""


class DifferentialPrivacySpec(Fields):
    """Differential privacy of a silo's examples or persons, or of all of it, over the whole job (Dwork et al., 2006).

    Neighbouring data of a silo differ in one example that trains or is passed over, or in one person with all examples;
    how many there are is the same in both, and does not leave. Where the unit is the silo, neighbouring are its data
    and none; that it takes part is not protected.
    """

    unit: Literal["example", "person", "silo"] = Field(
        description="What is protected: one training example of a silo, one person with all examples, where the "
        "silo's dataset names persons, or all that one silo has."
    )
    epsilon: Number | None = Field(
        default=None, gt=0, description="Of the whole job for each silo; its noise follows from that."
    )
    noise_multiplier: Number | None = Field(
        default=None,
        gt=0,
        le=MOST_NOISE_MULTIPLIER,
        description="In place of epsilon: deviation of the noise over what one example, person or silo can add; "
        f"{LEAST_NOISE_MULTIPLIER:g} or more.",
    )
    delta: Number = Field(
        gt=0,
        lt=1,
        description="Less than one over the examples, or persons, of a silo, which is refused there otherwise; of unit "
        "silo less than one over the silos.",
    )
    max_grad_norm: Number | None = Field(
        default=None,
        gt=0,
        description="L2 norm that the gradient of each example is clipped to; 1 when null; not for unit silo.",
    )
    max_feature_norm: Number | None = Field(
        default=None,
        gt=0,
        description="L2 norm that features are clipped to in class statistics; 10 when null; not for unit silo.",
    )
    max_update_norm: Number | None = Field(
        default=None,
        gt=0,
        description="L2 norm that a silo's change of the model is clipped to in each round; for unit silo.",
    )

    @property
    def grad_norm(self) -> float:
        """L2 norm of the gradient of an example."""
        return 1.0 if self.max_grad_norm is None else self.max_grad_norm

    @property
    def feature_norm(self) -> float:
        """L2 norm of features in class statistics."""
        return 10.0 if self.max_feature_norm is None else self.max_feature_norm

    @property
    def noised_by_trainer(self) -> bool:
        """Whether it is of examples or persons, whose noise the trainer adds; that of a whole silo is the guard's."""
        return self.unit != "silo"

    @override
    def __str__(self) -> str:
        at = f"at delta {self.delta:g} for each {self.unit}, over the whole job"
        if self.epsilon is not None:
            return f"epsilon {self.epsilon:g} {at}"
        return f"noise multiplier {self.noise_multiplier:g}, from which each silo's epsilon follows {at}"

    @model_validator(mode="after")
    def _target_or_noise(self) -> Self:
        check_one_of(epsilon=self.epsilon is not None, noiseMultiplier=self.noise_multiplier is not None)
        return self

    @model_validator(mode="after")
    def _noise_of_a_mechanism(self) -> Self:
        # No bound of the field, which the API server would cut to a whole number.
        if self.noise_multiplier is not None and self.noise_multiplier < LEAST_NOISE_MULTIPLIER:
            remedy = f"use {LEAST_NOISE_MULTIPLIER:g} or more"
            raise invalid_value("is too small", remedy, "noiseMultiplier", value=self.noise_multiplier)
        return self

    @model_validator(mode="after")
    def _norms_of_the_unit(self) -> Self:
        if self.unit == "silo":
            if self.max_update_norm is None:
                raise invalid_value(
                    "is missing, which unit silo needs", "add it", "maxUpdateNorm", value=ABSENT_VALUE
                )
            for field, value in {
                "maxGradNorm": self.max_grad_norm,
                "maxFeatureNorm": self.max_feature_norm,
            }.items():
                if value is not None:
                    raise invalid_value("has no meaning for unit silo", "remove it", field, value=value)
        elif self.max_update_norm is not None:
            problem = "has a meaning for unit silo only"
            raise invalid_value(problem, "remove it", "maxUpdateNorm", value=self.max_update_norm)
        return self
