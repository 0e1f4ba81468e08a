"""What a silo half does in place of plain training and plain statistics where the job has differential privacy."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.differential_privacy import DifferentialPrivacySpec
from fedsilo.errors import MethodError
from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.methods.traits import MechanismName
from fedsilo.privacy.mechanism import Mechanism

if TYPE_CHECKING:
    from torch import nn

    from fedsilo.learning.examples import Examples
    from fedsilo.learning.training import LocalTraining, Loss, TrainingReport

log = logging.getLogger("fedsilo.trainer")


def privacy_of(silo: SiloContext) -> DifferentialPrivacySpec | None:
    """The job's differential privacy of examples or persons, if any; that of the whole silo is the guard's work."""
    private = silo.spec.privacy.differential_privacy
    return private if private is not None and private.noised_by_trainer else None


def fit_privately(
    silo: SiloContext, task: SiloTask, model: nn.Module, examples: Examples, plan: LocalTraining, loss: Loss
) -> tuple[TrainingReport, tuple[Mechanism, ...]]:
    """DP-SGD with the noise that the job asks of this silo, and the mechanism that the examples went through.

    :param examples: the silo's training examples, or others with the same persons.
    :raises DataInvalid: when the silo has too few examples or persons for the job's batches, or too many for its delta.
    """
    from fedsilo.learning import private_training

    private = privacy_of(silo)
    assert private is not None, "asked for only where the job has it"
    mechanism = _mechanism_of(silo, task, "DP-SGD")
    if (examples.persons is None, examples.records) != (silo.train.persons is None, silo.train.records):
        raise MethodError(
            "spec.privacy.differentialPrivacy: the method trains on other records than the silo has; use another method"
        )
    privacy = private_training.ExamplePrivacy(mechanism, private.grad_norm, noise_generator(silo, task))
    report = private_training.fit_privately(model, examples, plan, privacy, loss)
    if report.steps != mechanism.times:
        raise MethodError(
            f"spec.privacy.differentialPrivacy: {report.steps} steps were taken and {mechanism.times} would be "
            "charged; report this as a defect"
        )
    return report, (mechanism,)


def require_examples_apart(silo: SiloContext, network: Callable[[], nn.Module]) -> None:
    """Refuse, before round 1, a network whose examples have no gradients of their own; only where the job needs them.

    It is tried on made-up inputs; of the silo's examples only their shape and some labels are used.

    :param network: builds the one that is trained.
    :raises MethodError: naming module or tensor, and what may stand in its place.
    """
    if privacy_of(silo) is None or len(silo.train) == 0:
        return
    import torch

    from fedsilo.learning.company import NEEDED_EXAMPLES, made_up_inputs, require_apart

    features, labels = silo.train.batch(
        torch.arange(NEEDED_EXAMPLES, device=silo.train.labels.device) % len(silo.train)
    )
    inputs = made_up_inputs(features, silo.learning_task.vocabulary)
    chosen = require_apart(network(), inputs, labels.cpu(), silo.loss())
    log.info("gradients of single examples: %s", chosen)


def _mechanism_of(silo: SiloContext, task: SiloTask, name: MechanismName) -> Mechanism:
    """What this silo's examples or persons go through in this task; errors as `fit_privately`."""
    from fedsilo.methods import registry
    from fedsilo.methods.differential_privacy import round_mechanisms

    method, noise = registry.bind(silo.spec), noise_multiplier_of(silo)
    planned = round_mechanisms(method, task.step, silo.train.records, noise)
    if name not in planned:
        raise MethodError(
            f"spec.privacy.differentialPrivacy: method {method.name} declares no {name} in its step {task.step!r}, so "
            "that nothing would be charged for it; use another method"
        )
    return planned[name]


def noised_by_training(model: nn.Module) -> frozenset[str]:
    """Names of all tensors that `fit_privately` has clipped and noised: the parameters that it trains."""
    from fedsilo.learning.state_names import named_parameters

    parameters = named_parameters(model, remove_duplicate=False)
    return frozenset(name for name, parameter in parameters if parameter.requires_grad)


def noise_multiplier_of(silo: SiloContext) -> float:
    """Deviation of the noise over what one of this silo's examples or persons can add; errors as `fit_privately`."""
    from fedsilo.methods import registry
    from fedsilo.methods.differential_privacy import noise_multiplier

    private = privacy_of(silo)
    if private is not None and (private.unit == "person") != (silo.train.persons is not None):
        raise MethodError(
            f"spec.privacy.differentialPrivacy.unit: {private.unit!r} is not what the silo's examples were read for; "
            "report this as a defect"
        )
    return noise_multiplier(registry.bind(silo.spec), silo.train.records)


def noise_generator(silo: SiloContext, task: SiloTask) -> np.random.Generator:
    """Random numbers for one task's samples and noise.

    The same for the same task with the same tensors and settings, so that a task which is done again after a crash is
    no second release; others for others, whoever sends them under the same name.
    """
    digest = hashlib.sha256(repr(sorted(task.settings.items())).encode())
    for name, tree in sorted(task.trees.items()):
        digest.update(name.encode())
        _add(digest, tree)
    purpose = ("differential privacy", task.step, task.phase, task.round, digest.hexdigest())
    return silo.secret_generator(*purpose)


def _add(digest: hashlib._Hash, tree: Mapping[str, np.ndarray]) -> None:
    for name, array in tree.items():
        digest.update(f"{name} {array.dtype} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data if array.size else b"")


def noisy_counts(silo: SiloContext, task: SiloTask) -> tuple[np.ndarray, tuple[Mechanism, ...]]:
    """(C,) examples of each class with noise, not below zero: one example changes one count by one.

    Of persons each counts as one, in parts where examples are of several classes: norm 1 at most.
    """
    mechanism, random = _mechanism_of(silo, task, "Gaussian"), noise_generator(silo, task)
    labels = silo.train.labels.cpu().numpy()
    classes = silo.signature.classes
    noise = random.normal(0, mechanism.noise_multiplier, classes)
    counts = np.bincount(labels, silo.train.parts, classes) + noise
    return np.maximum(np.rint(counts), 0).astype(np.int64), (mechanism,)


def noisy_moments(
    silo: SiloContext, task: SiloTask, features: np.ndarray, order: int
) -> tuple[list[tuple[int, np.ndarray, np.ndarray | None]], tuple[Mechanism, ...]]:
    """Count, sum, and sum of products of the features of each class, with noise.

    Features are clipped to the L2 norm F. One example adds at most 1 to a count, F to a sum and F^2 to the upper
    triangle of a sum of products, each divided by which is a vector of norm 1; all `order + 1` of them together have
    norm sqrt(order + 1). A person adds the mean of what each example would add, over the person's examples of all
    classes, whose norm is no larger.

    :param features: (n, d) of the silo's training examples.
    :param order: 0 for counts alone, 1 for sums as well, 2 for products too.
    :returns: for each class a count, not below zero, (d,) and (d, d), symmetric; and the mechanism.
    """
    private = privacy_of(silo)
    assert private is not None, "asked for only where the job has it"
    norm, width = private.feature_norm, features.shape[1]
    mechanism, random = _mechanism_of(silo, task, "Gaussian"), noise_generator(silo, task)
    deviation = mechanism.noise_multiplier * np.sqrt(order + 1)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    clipped = features * (norm / np.maximum(lengths, norm))
    labels, parts, found = silo.train.labels.cpu().numpy(), silo.train.parts, []
    for label in range(silo.signature.classes):
        members, part = clipped[labels == label], parts[labels == label]
        weighted = members * part[:, np.newaxis]
        count = int(max(np.rint(part.sum() + random.normal(0, deviation)), 0))
        total = weighted.sum(axis=0) + random.normal(0, deviation * norm, width)
        products = None
        if order == 2:
            upper = np.triu(weighted.T @ members + random.normal(0, deviation * norm**2, (width, width)))
            products = upper + np.triu(upper, 1).T
        found.append((count, total, products))
    return found, (mechanism,)


def positive_covariance(covariance: np.ndarray) -> np.ndarray:
    """The nearest matrix, in Frobenius norm, without a negative eigenvalue: noise may have made it indefinite."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)
