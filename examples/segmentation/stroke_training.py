"""A training of one's own: cross-entropy and Dice loss together, on images that are mirrored at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedsilo import Model, TrainingContext, TrainingData, TrainingOutcome


def train(model: Model, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """What each silo does in a round."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=context.budget.learning_rate)
    total, seen = 0.0, 0
    for epoch in range(context.budget.epochs):
        for images, masks in data.train.batches(context.budget.batch_size, seed=context.seed + epoch):
            if torch.rand(()) < 0.5:
                images, masks = images.flip(-1), masks.flip(-1)
            logits = model(images)
            loss = functional.cross_entropy(logits, masks) + dice_loss(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, seen = total + loss.item() * len(masks), seen + len(masks)
        print(f"epoch {epoch + 1}: loss {total / seen:.3f}")
    return TrainingOutcome(model, samples=len(data.train), metrics={"loss": total / seen})


def dice_loss(logits: Tensor, masks: Tensor) -> Tensor:
    """1 - 2 |A and B| / (|A| + |B|), mean over classes (Milletari et al., 2016).

    :param logits: (n, classes, h, w).
    :param masks: (n, h, w).
    """
    found = logits.softmax(dim=1)
    wanted = functional.one_hot(masks, logits.shape[1]).movedim(-1, 1)
    common = (found * wanted).sum(dim=(0, 2, 3))
    return 1 - (2 * common / (found + wanted).sum(dim=(0, 2, 3))).mean()
