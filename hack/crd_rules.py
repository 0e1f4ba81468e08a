"""What the API server checks beyond types and bounds: the models' validators in CEL (Kubernetes: CRD validation rules).

The texts are those of the validators, so that a person reads the same on one machine and on a cluster. That names are
unique in a list is no rule here: the list's key says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fedsilo.api.patterns import DURATION, FORMATS, RFC1035_LABEL
from fedsilo.methods import registry
from fedsilo.privacy.mechanism import LEAST_NOISE_MULTIPLIER
from hack.combinations import method_of
from hack.crd_choice_rules import CHOICE_RULES
from hack.crd_pod_rules import POD_RULES
from hack.crd_rule import Rule


def one_of(choices: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rules by which exactly one of some fields is given, see `common.check_one_of`.

    :param choices: field -> CEL for whether it is there.
    """
    names, given = " and ".join(choices), list(choices.values())
    return (
        Rule(f"!({' && '.join(given)})", f"has {names} together; remove all but one"),
        Rule(" || ".join(given), f"has none of {names}; give one of them"),
    )


def choice(values: list[str]) -> Rule:
    """The rule of a nullable enumeration, whose null the API server would refuse as not enumerated."""
    *most, last = values
    known = f"{', '.join(most)} or {last}" if most else last
    return Rule(f"self in {values}", f"is not a known choice; use {known}")


def key_length(longest: int) -> Rule:
    """The rule of a mapping whose keys are bounded, which a structural schema cannot say."""
    return Rule(
        f"self.all(key, key.size() <= {longest})", f"has a key of more than {longest} characters; shorten it"
    )


def scored_methods() -> list[str]:
    """The built-in methods that have a model to score; of others the API server knows nothing."""
    built_in = [name for name in registry.names() if registry.package_of(name) is None]
    return [name for name in built_in if method_of(method=name).models.scored]


def name_rules(longest: int) -> tuple[Rule, ...]:
    """Rules of `metadata.name`, stricter than the API server's own."""
    name = "self.metadata.name"
    return (
        Rule(
            f"{name}.size() <= {longest}",
            f"{name} + ': has more than {longest} characters; shorten it'",
            ".metadata.name",
            computed=True,
        ),
        Rule(
            f"{name}.matches('{RFC1035_LABEL}')",
            f'{name} + ": has not the right form; write {FORMATS[RFC1035_LABEL]}"',
            ".metadata.name",
            computed=True,
        ),
    )


# m <= ceil(x) without a ceil: x just above a whole number by no more than rounding counts as that number, because
# ParticipationSpec.sampled takes the fraction as the decimal that is written.
SAMPLED_SILOS: Final = "(int(self.participation.fraction * double(self.silos.refs.size()) - 1e-11) + 1)"
_QUORUM: Final = "self.participation.minSilos"
_PUBLIC_DATASET: Final = "self.aggregation.publicDataset"
_AUGMENTATION: Final = "self.training.augmentation"
_SHAPE: Final = "self.data.inputShape"

_FINAL_PHASES: Final = "['Complete', 'Failed']"


def _without_steps(field: str) -> Rule:
    """The rule of a field that has no meaning beside `localSteps`; by default it is 1, which an API server fills in."""
    return Rule(
        f"!has(self.localSteps) || self.{field} == 1",
        f"'%d: has no meaning with localSteps, which says the number of steps (%d); remove {field} or localSteps'"
        f".format([self.{field}, self.localSteps])",
        f".{field}",
        computed=True,
    )


def _not_of_silos(field: str) -> Rule:
    """The rule of a norm in `differentialPrivacy` that is of single examples."""
    text = "has no meaning for unit silo; remove it"
    return Rule(f"!has(self.{field}) || self.unit != 'silo'", text, f".{field}")


def frozen_rules(fields: Iterable[str], text: str) -> tuple[Rule, ...]:
    """Rules by which fields are what they were: one that comes or goes has no rule of its own that would see it."""
    return tuple(
        Rule(
            f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
            text,
            f".{field}",
        )
        for field in fields
    )


FROZEN_TEXTS: Final[Mapping[str, str]] = {
    "FederatedJobSpec": "does not change once the job exists; make a new job, or change only suspend and "
    "ttlSecondsAfterFinished",
    "SiloAgentSpec": "does not change once the agent exists; delete the SiloAgent, and the operator makes it anew from "
    "the job",
}
"""Model of a spec that does not change -> what is said of a field that was changed; but for `MUTABLE_FIELDS`."""

MUTABLE_FIELDS: Final = ("suspend", "ttlSecondsAfterFinished")
"""Fields of a job's and of an agent's spec that may change."""

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    **POD_RULES,
    **CHOICE_RULES,
    "SilosSpec": one_of({"refs": "self.refs.size() > 0", "selector": "has(self.selector)"}),
    "VolumeSpec": (
        *one_of(
            {"persistentVolumeClaim": "has(self.persistentVolumeClaim)", "hostPath": "has(self.hostPath)"}
        ),
        Rule(
            "!has(self.hostPath) || self.hostPath.startsWith('/') && !self.hostPath.matches('/[.][.](/|$)')",
            "is no absolute path without '..'; write the directory's whole path, such as /srv/data",
            ".hostPath",
        ),
    ),
    "InitialWeightsSpec": one_of({"file": "has(self.file)", "run": "has(self.run)"}),
    "DifferentialPrivacySpec": (
        *one_of({"epsilon": "has(self.epsilon)", "noiseMultiplier": "has(self.noiseMultiplier)"}),
        Rule(
            f"!has(self.noiseMultiplier) || self.noiseMultiplier >= {LEAST_NOISE_MULTIPLIER:g}",
            f"is too small; use {LEAST_NOISE_MULTIPLIER:g} or more",
            ".noiseMultiplier",
        ),
        _not_of_silos("maxGradNorm"),
        _not_of_silos("maxFeatureNorm"),
        Rule(
            "!has(self.maxUpdateNorm) || self.unit == 'silo'",
            "has a meaning for unit silo only; remove it",
            ".maxUpdateNorm",
        ),
        Rule(
            "has(self.maxUpdateNorm) || self.unit != 'silo'",
            "is missing, which unit silo needs; add it",
            ".maxUpdateNorm",
        ),
    ),
    "ParametersSpec": (
        Rule(
            "self.shared.size() + self.frozen.size() + self.local.size() > 0",
            "has no pattern; name tensors in shared, frozen or local, or remove parameters",
        ),
    ),
    "PartitionSpec": (
        Rule(
            "self.index < self.silos",
            "'%d: is not below the %d parts of silos; use 0 to %d'"
            ".format([self.index, self.silos, self.silos - 1])",
            ".index",
            computed=True,
        ),
    ),
    "TrainingSpec": (
        _without_steps("localEpochs"),
        _without_steps("minSteps"),
        Rule(
            "!has(self.trainerMetrics) || self.trainerMetrics.size() == 0 || has(self.trainer)",
            "has no meaning without trainer, whose metrics they are; name the function in trainer, or remove it",
            ".trainerMetrics",
        ),
        Rule(
            "self.warmupRounds <= self.rounds || self.warmupRounds == 0",
            "'%d: is more than rounds (%d), so that the learning rate never reaches its value; use at most %d, or "
            "more rounds'.format([self.warmupRounds, self.rounds, self.rounds])",
            ".warmupRounds",
            computed=True,
        ),
    ),
    "SiloPolicy": (
        Rule(
            "!has(self.notBefore) || !has(self.notAfter) || self.notBefore < self.notAfter",
            # Without the value: the estimated cost of a time as text is over the API server's budget.
            "is not after notBefore; write a later time",
            ".notAfter",
        ),
    ),
    "FederatedJobSpec": (
        Rule(
            f"!has({_QUORUM}) || self.silos.refs.size() == 0 || {_QUORUM} <= self.silos.refs.size()",
            "'%d: is more than the %d silos of spec.silos.refs; use %d or less'"
            f".format([{_QUORUM}, self.silos.refs.size(), {SAMPLED_SILOS}])",
            ".participation.minSilos",
            computed=True,
        ),
        Rule(
            f"!has({_QUORUM}) || {_QUORUM} > self.silos.refs.size() || {_QUORUM} <= {SAMPLED_SILOS}",
            "'%d: is more than the %d silos drawn per round (fraction %s of %d); use %d or less'"
            f".format([{_QUORUM}, {SAMPLED_SILOS}, string(self.participation.fraction), "
            f"self.silos.refs.size(), {SAMPLED_SILOS}])",
            ".participation.minSilos",
            computed=True,
        ),
        Rule(
            "!has(self.evaluation.testDataset)"
            " || self.aggregator.datasets.exists(held, held.name == self.evaluation.testDataset)",
            "self.evaluation.testDataset + ': is not among spec.aggregator.datasets; add it there'",
            ".evaluation.testDataset",
            computed=True,
        ),
        Rule(
            f"!has({_PUBLIC_DATASET}) || self.aggregator.datasets.exists(held, held.name == {_PUBLIC_DATASET})",
            f"{_PUBLIC_DATASET} + ': is not among spec.aggregator.datasets; add it there'",
            ".aggregation.publicDataset",
            computed=True,
        ),
        Rule(
            f"!has({_PUBLIC_DATASET}) || !has(self.evaluation.testDataset) || {_PUBLIC_DATASET} != "
            "self.evaluation.testDataset",
            f"{_PUBLIC_DATASET} + ': has the examples of spec.evaluation.testDataset, on which nothing may be learned; "
            "name another dataset of public examples'",
            ".aggregation.publicDataset",
            computed=True,
        ),
        Rule(
            f"has(self.evaluation.testDataset) || !(self.method.name in {scored_methods()})"
            " || !has(self.data.validationFraction) || self.data.validationFraction > 0.0",
            "0: leaves the silos nothing to evaluate on; hold a part out, such as 0.1, "
            "or name a spec.evaluation.testDataset",
            ".data.validationFraction",
        ),
        Rule(
            f"!has({_AUGMENTATION}) || {_SHAPE}.size() == 3",
            f"'%s: is no image, which training.augmentation changes; remove the augmentation'.format([{_SHAPE}])",
            ".data.inputShape",
            computed=True,
        ),
        Rule(
            f"!has({_AUGMENTATION}) || {_SHAPE}.size() != 3"
            f" || {_AUGMENTATION}.crop < {_SHAPE}[1] && {_AUGMENTATION}.crop < {_SHAPE}[2]",
            "'%d: is not below the sides of %d x %d pixels; use an eighth of a side, which is usual'"
            f".format([{_AUGMENTATION}.crop, {_SHAPE}[1], {_SHAPE}[2]])",
            ".training.augmentation.crop",
            computed=True,
        ),
    ),
    "FederatedJob": (
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.completionTime)"
            " || has(self.status) && has(self.status.completionTime)"
            " && self.status.completionTime == oldSelf.status.completionTime",
            "does not change once the job is finished; make a new job",
            ".status.completionTime",
        ),
        Rule(
            "!has(oldSelf.status) || !has(oldSelf.status.conditions)"
            f" || oldSelf.status.conditions.all(was, !(was.type in {_FINAL_PHASES} && was.status == 'True')"
            " || has(self.status) && has(self.status.conditions)"
            " && self.status.conditions.exists(now, now.type == was.type && now.status == 'True'))",
            "say that the job is Complete or Failed, which is final; make a new job",
            ".status.conditions",
        ),
    ),
    "SiloSpec": (
        Rule(
            "has(self.remote) || self.datasets.size() > 0",
            "[]: is empty; list the datasets of the silo, or write remote for an institution outside of the cluster",
            ".datasets",
        ),
        Rule(
            "!has(self.remote) || self.datasets.size() == 0",
            "is the institution's to list; remove it, or remove remote",
            ".datasets",
        ),
        Rule(
            "!has(self.policy) || !has(self.policy.privacyBudget) || self.policy.privacyBudget.all(budget,"
            " self.datasets.exists(held, held.name == budget.dataset))",
            "has the budget of a dataset that is not among spec.datasets; name one of them",
            ".policy.privacyBudget",
        ),
    ),
    "Silo": (
        Rule(
            "has(self.spec.remote) || !has(oldSelf.status) || !has(oldSelf.status.publicKey)"
            " || has(self.status) && has(self.status.publicKey)"
            " && (self.status.publicKey == oldSelf.status.publicKey"
            " || has(self.status.rotations) && self.status.rotations.size() > 0)",
            "does not change without an announcement in status.rotations, because jobs trust it; kubectl fedsilo "
            "rotate-key gives the silo another key",
            ".status.publicKey",
        ),
    ),
}
"""Model -> its rules. Rules with `oldSelf` stand at the root: below `status` they would not see its removal."""

PATTERN_RULES: Final[Mapping[str, Rule]] = {
    DURATION: Rule(
        "self.matches('[1-9]')",
        "is not a duration above zero; write hours, minutes and seconds: 1h30m, 10m or 90s",
    ),
}
"""Pattern of a scalar type -> what the pattern cannot say."""
