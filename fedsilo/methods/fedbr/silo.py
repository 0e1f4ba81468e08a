"""FedBR in the silo: pseudo-data, and local training with the projection beside the model.

Section 4 and Algorithm 1 of the paper.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedsilo.learning.examples import Examples
from fedsilo.learning.models import load_tree, to_tree
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.mixing import mixing, unmixed_batch
from fedsilo.methods.fedbr.config import THETA, FedBRConfig
from fedsilo.methods.fedbr.loss import BiasReducedLoss, PseudoData, Terms, projection
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


def train(silo: SiloContext, task: SiloTask, private: State, *, config: FedBRConfig) -> Reply:
    """Local training with FedBR's loss; the reply carries phi, omega and, where there is a contrast, theta."""
    theta = projection(silo.signature.feature).to(silo.train.labels.device)
    if config.contrast_weight:
        tree = task.trees["projection"]
        load_tree(theta, {name.removeprefix(THETA): array for name, array in tree.items()})
    terms = Terms(
        pseudo=config.pseudo_weight,
        contrast=config.contrast_weight,
        temperature=config.temperature,
        max_step=config.max_step,
        global_once=config.variant == "released",
    )
    plan = silo.local_training(task)
    if config.variant == "released" and silo.spec.training.local_steps and task.phase_round == 1:
        plan = replace(plan, min_steps=1, max_steps=1)
    mix = unmixed_batch if config.mixup is None else mixing(silo, task, config.mixup)
    loss = BiasReducedLoss(
        terms, silo.model(task.trees["model"]), theta, pseudo_data(silo, task, config), plan.lr, mix
    )
    reply = train_model(silo, task, private, loss=loss, plan=plan)
    if not config.contrast_weight:
        return reply
    stepped = {THETA + name: array for name, array in to_tree(theta).items()}
    return replace(reply, tensors={**reply.tensors, **stepped})


def pseudo_data(silo: SiloContext, task: SiloTask, config: FedBRConfig) -> PseudoData:
    """D_p, as many as a batch holds: the same means in every round, or new mixtures in every step."""
    classes, size = silo.signature.classes, silo.spec.training.batch_size
    if config.pseudo_data == "means":
        return local_means(silo.train, classes, size, config.averaged, silo.seed("pseudo-data"))
    proxies = torch.tensor(task.trees["proxies"]["proxies"], device=silo.train.labels.device)
    return local_mixtures(silo.train, classes, proxies, config.mixed, silo.seed("mixture", task.round))


def local_means(examples: Examples, classes: int, size: int, averaged: int, seed: int) -> PseudoData:
    """Pseudo-data of random sample means, the same in each step.

    Each x_p is the mean of so many local examples, its label uniform.

    :param averaged: examples in a mean, all of them where there are fewer.
    """
    generator = torch.Generator().manual_seed(seed)
    device, n = examples.labels.device, len(examples)
    means = []
    for _ in range(size):
        drawn = torch.randperm(n, generator=generator)[:averaged].to(device)
        means.append(examples.batch(drawn)[0].mean(dim=0))
    inputs = torch.stack(means)
    labels = torch.full((size, classes), 1 / classes, device=device)
    return lambda: (inputs, labels)


def local_mixtures(examples: Examples, classes: int, proxies: Tensor, mixed: int, seed: int) -> PseudoData:
    """Pseudo-data of mixtures of proxies and local examples, new ones in each step.

    Each proxy mean is mixed with so many local examples, (x_p + sum of x_j) / (K + 1), and its label in the same way.
    """
    generator = torch.Generator().manual_seed(seed)
    device, n = examples.labels.device, len(examples)

    def draw() -> tuple[Tensor, Tensor]:
        inputs, labels = proxies.clone(), torch.full((len(proxies), classes), 1 / classes, device=device)
        for _ in range(mixed):
            drawn = torch.randint(n, (len(proxies),), generator=generator).to(device)
            features, classes_of = examples.batch(drawn)
            inputs += features
            labels += classes_of[:, None] == torch.arange(classes, device=device)
        return inputs / (mixed + 1), labels / (mixed + 1)

    return draw
