"""DANN in the silo: a discriminator learns which silo a feature is from, and the encoder that it cannot be told.

Algorithm 1 of the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedsilo.api.common import MAX_SILOS
from fedsilo.errors import MethodError
from fedsilo.learning.models import Model, load_tree, to_tree
from fedsilo.learning.training import fit
from fedsilo.methods.components.settings import whole_number
from fedsilo.methods.dann.config import DISCRIMINATOR, NUMBER, SILOS, DANNConfig
from fedsilo.methods.dann.discriminator import discriminator
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


class AdversarialLoss:
    """L_y - lambda L_d of the model, whose D is fixed, and L_d of the discriminator, whose features are fixed.

    L_y is the cross-entropy of the classes, L_d that of the silo's number, eq. 13 to 15; lambda is 1 in the
    discriminator's own step, as in the paper's experiments. Together their gradients are those of a reversal layer; by
    turns, the first step is the model's, the second the discriminator's, and so on.

    :param number: the silo's.
    """

    def __init__(self, config: DANNConfig, adversary: nn.Module, number: int) -> None:
        self._config, self._adversary, self._number = config, adversary, number
        self._steps = 0

    def __call__(self, model: Model, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch for this step."""
        z = model.features(features)
        number = torch.full_like(labels, self._number)
        of_discriminator = functional.cross_entropy(self._adversary(z.detach()), number)
        if self._config.variant == "released" and self._steps % 2:
            return of_discriminator
        fixed = {name: tensor.detach() for name, tensor in self._adversary.named_parameters()}
        fooled = functional.cross_entropy(functional_call(self._adversary, fixed, (z,)), number)
        of_model = functional.cross_entropy(model.classifier(z), labels) - self._config.reversal * fooled
        return of_model if self._config.variant == "released" else of_model + of_discriminator

    def count(self, _model: nn.Module) -> None:
        """Count a local step, by which model and discriminator take turns."""
        self._steps += 1


def train(silo: SiloContext, task: SiloTask, private: State, *, config: DANNConfig) -> Reply:
    """Local training of the model and the discriminator, both of which the reply carries."""
    number, silos = place(silo, task)
    model = silo.model(task.trees["model"])
    adversary = discriminator(silo.signature.feature, config.hidden, silos).to(silo.train.labels.device)
    tree = task.trees["discriminator"]
    load_tree(adversary, {name.removeprefix(DISCRIMINATOR): array for name, array in tree.items()})
    loss = AdversarialLoss(config, adversary, number)
    both = [*model.parameters(), *adversary.parameters()]
    report = fit(
        model, silo.train, silo.local_training(task), loss=loss, after_step=loss.count, parameters=both
    )
    stepped = {DISCRIMINATOR + name: array for name, array in to_tree(adversary).items()}
    return Reply({**to_tree(model), **stepped}, samples=len(silo.train), metrics={"loss": report.loss})


def place(silo: SiloContext, task: SiloTask) -> tuple[int, int]:
    """The silo's number and how many silos there are, as the task says.

    :raises MethodError: it does not, or says another place than the job where that names its silos.
    """
    silos = whole_number(task, SILOS, 1, MAX_SILOS)
    number = whole_number(task, NUMBER, 0, silos - 1)
    named = [str(ref) for ref in silo.spec.silos.refs]
    if named and (len(named) != silos or named[number] != silo.silo):
        raise MethodError(
            f"task settings {NUMBER} and {SILOS}: {number} and {silos} are not the place of {silo.silo} in "
            "spec.silos.refs; run the aggregator and the silos in one version"
        )
    return number, silos
