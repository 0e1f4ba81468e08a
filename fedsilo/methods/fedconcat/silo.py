"""FedConcat in the silo, stage 3: linear probing.

In stage 3 one linear classifier is trained on the concatenated features of encoders that stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedsilo.learning.evaluation import features_of
from fedsilo.learning.examples import Examples
from fedsilo.learning.local_steps import LocalSteps
from fedsilo.learning.models import Model, load_tree
from fedsilo.learning.training import LocalTraining, cross_entropy_loss
from fedsilo.methods.components.local import reply_of_training
from fedsilo.methods.fedconcat.cluster_models import trees
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State


@dataclass(frozen=True)
class LinearProbe:
    """Local training of the classifier, which is all that is trained in stage 3.

    The encoders do not change any more, so the features of the silo's examples are computed once, in evaluation
    mode and without augmentation, and kept in its private state. (The released code computes them anew for every
    batch, and leaves the encoders in training mode, which lets BatchNorm drift across silos inside one process; no real
    federation can share that.)

    :param steps: of one round.
    :param weight_decay: of this stage; None is the job's.
    """

    steps: LocalSteps
    weight_decay: float | None

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """One round of the silo: the classifier's tensors, and the features for the rounds to come."""
        private = private if "features" in private.trees else _with_features(silo, task, private)
        device = silo.train.labels.device
        features = torch.tensor(private.tree("features")["features"], device=device)
        model = Model(torch.nn.Identity(), torch.nn.Linear(features.shape[1], silo.signature.classes))
        load_tree(model, task.trees["classifier"])
        plan = replace(self.plan(silo.local_training(task)), augmentation=None)  # of images, not of features
        examples = Examples(features, silo.train.labels, persons=silo.train.persons)
        reply = reply_of_training(silo, task, model.to(device), examples, plan, cross_entropy_loss)
        return replace(reply, private=private)

    def plan(self, plan: LocalTraining) -> LocalTraining:
        """The job's local training with this stage's steps and weight decay."""
        plan = plan.taking(self.steps)
        return plan if self.weight_decay is None else replace(plan, weight_decay=self.weight_decay)


def _with_features(silo: SiloContext, task: SiloTask, private: State) -> State:
    """The private state with F(x) = [E_1(x); ...; E_K(x)] of every training example, (n, K d)."""
    encoders = trees(task.trees)
    parts = [features_of(silo.model(task.trees[name]), silo.train) for name in encoders]
    return private.with_trees(features={"features": np.concatenate(parts, axis=1)})
