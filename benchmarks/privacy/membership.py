"""Was this example among the victim's? From a score per example to the attack's success.

A score is anything that tends to be larger for members: the model's confidence in the example's class (Yeom et al.,
"Privacy Risk in Machine Learning", CSF 2018), or how far a disclosed mean leans toward the example (Dwork et al.,
"Robust Traceability from Trace Amounts", FOCS 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from benchmarks.privacy.federation import AttackedJob, Images
from fedsilo.learning.models import Model, as_model, build_model, load_tree
from fedsilo.methods.state import Tree

FALSE_POSITIVES = 0.01
"""Share of non-members that may be taken for members where true positives are counted (Carlini et al.)."""


@dataclass(frozen=True)
class Success:
    """How well an attack tells members from others.

    :param auc: area under the ROC curve; 0.5 is guessing.
    :param true_positives: share of members that are found where one in a hundred others is taken for one; 0.01 is
        guessing.
    """

    auc: float
    true_positives: float


def success(scores: np.ndarray, members: np.ndarray) -> Success:
    """How well scores of any shape, larger for members, tell them apart; `members` says which are."""
    truth, given = members.ravel(), scores.ravel()
    false, true, _ = roc_curve(truth, given)
    found = float(true[np.searchsorted(false, FALSE_POSITIVES, side="right") - 1])
    return Success(float(roc_auc_score(truth, given)), found)


def likelihood_ratios(scores: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Log-likelihood ratios of the scores, (runs, examples), by the other runs (Carlini et al., algorithm 1).

    For each run the others are the shadow models: their scores of the example, with it and without it among the
    victim's, are two normal distributions, whose deviations are those of all examples together, as with few
    shadows in the paper.

    :param members: (runs, examples) whether the victim had the example.
    """
    ratios = np.empty_like(scores)
    for run in range(len(scores)):
        others = np.arange(len(scores)) != run
        inside, outside = (_score_normal(scores[others], members[others] == value) for value in (True, False))
        ratios[run] = _log_density(scores[run], *inside) - _log_density(scores[run], *outside)
    return ratios


def _score_normal(scores: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean of each example's chosen scores, of all where there are none, and their common deviation."""
    count = chosen.sum(axis=0)
    total = np.where(chosen, scores, 0).sum(axis=0)
    means = np.where(count > 0, total / np.maximum(count, 1), scores.mean(axis=0))
    spread = float(np.sqrt(np.where(chosen, (scores - means) ** 2, 0).sum() / max(chosen.sum(), 1)))
    return means, max(spread, 1e-12)


def _log_density(values: np.ndarray, mean: np.ndarray, deviation: float) -> np.ndarray:
    return np.asarray(-(((values - mean) / deviation) ** 2) / 2 - np.log(deviation))


def network(attacked: AttackedJob, tree: Mapping[str, np.ndarray]) -> Model:
    """The job's network with these weights."""
    spec = attacked.manifest(0, Path()).job.spec
    model = as_model(build_model(spec.model, spec.data, seed=0), "the attacked model is")
    load_tree(model, tree)
    return model.eval()


def confidence(model: Model, images: Images) -> np.ndarray:
    """(n,) log of p / (1 - p), p the probability of the example's class (Carlini et al.)."""
    with torch.inference_mode():
        logits = model(torch.tensor(images[0])).double()
    labels = torch.tensor(images[1])[:, None]
    own = logits.gather(1, labels)[:, 0]
    others = logits.scatter(1, labels, -torch.inf).logsumexp(dim=1)
    return np.asarray((own - others).numpy())


def features(model: Model, images: Images) -> np.ndarray:
    """(n, d) features of images."""
    with torch.inference_mode():
        return np.asarray(model.encoder(torch.tensor(images[0])).double().numpy())


def gradients(model: Model, head: Tree, images: Images) -> np.ndarray:
    """(n, C d) gradient of each example's cross-entropy with respect to the head's weight (CReFF, eq. 3)."""
    phi = features(model, images)
    logits = phi @ head["classifier.weight"].T.astype(float) + head.get("classifier.bias", 0)
    errors = np.exp(logits - logits.max(axis=1, keepdims=True))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(phi)), images[1]] -= 1
    return np.asarray((errors[:, :, None] * phi[:, None, :]).reshape(len(phi), -1))


def leaning(
    candidates: Images, points: np.ndarray, auxiliary: Images, known: np.ndarray, disclosed: Tree, name: str
) -> np.ndarray:
    """(n,) by how much the mean of a candidate's class leans toward it: <y - nu_c, m_c - nu_c> (Dwork et al.).

    :param points: (n, d) y, what is averaged, of each candidate.
    :param known: (n', d) the same of images that the attacker has, whose mean of class c is nu_c.
    :param disclosed: m_c under the names `name/<class>`; a class without one has score 0.
    """
    scores = np.zeros(len(points))
    for label in range(10):
        mean = disclosed.get(f"{name}/{label}")
        own, other = candidates[1] == label, auxiliary[1] == label
        if mean is not None and own.any() and other.any():
            nu = known[other].mean(axis=0)
            scores[own] = (points[own] - nu) @ (mean.ravel() - nu)
    return scores
