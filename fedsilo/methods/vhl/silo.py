"""VHL in the silo: virtual examples, and training with features aligned to theirs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedsilo.learning.models import Model
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import Loss
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.mixing import mixing, unmixed_batch
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.state import State
from fedsilo.methods.vhl.config import VHLConfig
from fedsilo.methods.vhl.noise import VirtualExamples

VIRTUAL_CONTRAST_WEIGHT = 0.1
"""Weight of the contrast among virtual examples alone, as released."""


def train(silo: SiloContext, task: SiloTask, private: State, *, config: VHLConfig) -> Reply:
    """Local training with VHL's loss."""
    return train_model(silo, task, private, loss=aligned_loss(silo, task, config))


def aligned_loss(silo: SiloContext, task: SiloTask, config: VHLConfig) -> Loss:
    """CE(x, y) + alpha CE(x_v, y_v) + the alignment of both, with as many virtual examples as the batch has.

    Which ones is drawn from the silo's seed of the round; what they are follows from the job's. They enter the network
    behind the job's preprocessing and with the batch, so that BatchNorm sees both. A mixture l x + (1 - l) x' is one of
    both classes, for l and 1 - l, in the cross-entropy and in the alignment alike.
    """
    seed = derive_seed(silo.spec.training.seed, "virtual examples")
    classes, device = silo.signature.classes, silo.train.labels.device
    virtual = VirtualExamples(silo.spec.data.input_shape, classes, config.per_class, seed)
    generator = torch.Generator().manual_seed(silo.seed("virtual examples", task.phase, task.round))
    mix = unmixed_batch if config.mixup is None else mixing(silo, task, config.mixup)

    def loss(model: Model, features: Tensor, labels: Tensor) -> Tensor:
        n, mixed = len(labels), mix(features, labels)
        real = mixed.inputs if model.preprocessing is None else model.preprocessing(mixed.inputs)
        noise, virtual_labels = (part.to(device) for part in virtual.draw(n, generator))
        z = model.encoder(torch.cat([real, noise]))
        logits = model.classifier(z)
        own = mixed.cross_entropy(logits[:n])
        other = functional.cross_entropy(logits[n:], virtual_labels)
        aligned = z if config.variant == "paper" else logits

        def align_to(classes: Tensor) -> Tensor:
            return alignment(aligned[:n], aligned[n:], classes, virtual_labels, config.temperature)

        align = mixed.mixed_term(align_to)
        return own + config.virtual_weight * other + align

    return loss


def alignment(real: Tensor, virtual: Tensor, labels: Tensor, virtual_labels: Tensor, t: float) -> Tensor:
    """The contrast of all examples, with the virtual ones fixed, and a tenth of that among the virtual ones.

    :param real: representations (n, d).
    :param virtual: representations (m, d).
    :param t: temperature.
    """
    together, classes = torch.cat([real, virtual.detach()]), torch.cat([labels, virtual_labels])
    return contrast(together, classes, t) + VIRTUAL_CONTRAST_WEIGHT * contrast(virtual, virtual_labels, t)


def contrast(representations: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss of representations, by their cosines over a temperature T.

    The mean over examples i of that over the others p of its class of
    -log(e^(cos(i, p) / T) / sum over the others a of e^(cos(i, a) / T)); 0 for an example alone in its class.

    Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, eq. 2.

    :param representations: (n, d).
    """
    unit = functional.normalize(representations.float(), dim=1)
    alone = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    cosines = (unit @ unit.T).float() / temperature
    least = torch.finfo(cosines.dtype).min  # not -inf, which has no gradient where there are no others
    log = cosines - cosines.masked_fill(alone, least).logsumexp(dim=1, keepdim=True)
    alike = (labels[:, None] == labels[None, :]) & ~alone
    return (-(log.masked_fill(~alike, 0).sum(dim=1)) / alike.sum(dim=1).clamp_min(1)).mean()
