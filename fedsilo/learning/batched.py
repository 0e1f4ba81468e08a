"""Local training of several clients at once: their weights stacked, their batches side by side.

Sums are those of `fedsilo.learning.training.fit` in another order, so that results agree to rounding and not to the
byte. It pays where one client's batch leaves the device idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fedsilo.errors import MethodError
from fedsilo.learning.divergence import diverged
from fedsilo.learning.examples import Examples, batches
from fedsilo.learning.models import Model, load_tree
from fedsilo.learning.plan import View
from fedsilo.learning.stacked_optimizers import Stack, StackedOptimizer
from fedsilo.learning.training import LocalTraining, TrainingReport, has_batch_norm, steps_of

Tree = dict[str, np.ndarray]


@dataclass(frozen=True)
class BatchedClient:
    """One client's part.

    :param tree: its initial weights.
    """

    tree: Mapping[str, np.ndarray]
    examples: Examples
    plan: LocalTraining


def require_independent(model: nn.Module) -> None:
    """Return if a batch of several clients computes what each would compute by itself.

    :raises MethodError: naming what does not.
    """
    dropout = any(isinstance(module, nn.modules.dropout._DropoutNd) for module in model.modules())
    what = "BatchNorm" if has_batch_norm(model) else "dropout" if dropout else None
    if what is not None:
        raise MethodError(
            f"the network has {what}, with which clients cannot be trained together; train one client at a time"
        )


def fit_batched(model: Model, clients: Sequence[BatchedClient]) -> list[tuple[Tree, TrainingReport]]:
    """Train every client from its own weights on the cross-entropy; returns weights and report of each.

    Plans may differ in their seeds and in the state that they bring only.

    :param model: the network of all of them; its weights are overwritten.
    :raises DataInvalid: too few examples for a single step.
    :raises MethodError: training diverged, or the network does not permit it.
    """
    require_independent(model)
    plan = clients[0].plan
    assert all(replace(client.plan, seed=plan.seed) == plan for client in clients)
    counts = [steps_of(len(client.examples), client.plan, skip_single=False) for client in clients]
    # Clients with most steps first, so that the active ones are a prefix at every step.
    order = sorted(range(len(clients)), key=lambda place: -counts[place][1])
    ordered = [clients[place] for place in order]
    stack, steps = _stack(model, ordered), [counts[place][1] for place in order]
    losses, sizes = _train(model, stack, ordered, steps)
    results: list[tuple[Tree, TrainingReport] | None] = [None] * len(clients)
    for row, place in enumerate(order):
        tree = {name: tensor[row].cpu().numpy() for name, tensor in stack.items()}
        per_epoch, taken = counts[place]
        _require_finite(tree, plan.lr)
        last = slice((taken - 1) // per_epoch * per_epoch, taken)
        loss = float(np.average(losses[row, last], weights=sizes[row, last]))
        results[place] = (
            tree,
            TrainingReport(taken, loss, len(clients[place].examples), float(losses[row, 0])),
        )
    return [result for result in results if result is not None]


def _stack(model: Model, clients: Sequence[BatchedClient]) -> Stack:
    rows: list[Stack] = []
    for client in clients:
        load_tree(model, client.tree)
        rows.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _train(
    model: Model, stack: Stack, clients: Sequence[BatchedClient], steps: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Train the stack in place; losses and batch sizes, (clients, steps)."""
    plan, device = clients[0].plan, clients[0].examples.labels.device
    trained = [name for name, _ in model.named_parameters()]
    optimizer = StackedOptimizer(stack, trained, [client.plan for client in clients])
    losses = torch.zeros((len(clients), steps[0]), dtype=torch.float64, device=device)
    sizes = np.zeros((len(clients), steps[0]))

    def loss(weights: Stack, features: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bfloat16"):
            logits = functional_call(model, weights, (features,))
            each = functional.cross_entropy(logits, labels, reduction="none")
        return (each * mask).sum() / mask.sum()

    model.train()
    orders = [_order(client) for client in clients]
    views = [client.plan.views() for client in clients]
    for step in range(steps[0]):
        active = sum(taken > step for taken in steps)
        index = [next(order) for order in orders[:active]]
        sizes[:active, step] = [len(rows) for rows in index]
        weights = {name: tensor[:active].detach() for name, tensor in stack.items()}
        for name in trained:
            weights[name].requires_grad_()
        value = vmap(loss)(weights, *_batch(clients[:active], views[:active], index))
        gradients = torch.autograd.grad(value.sum(), [weights[name] for name in trained])
        found = dict(zip(trained, gradients, strict=True))
        losses[:active, step] = value.detach()
        optimizer.step(_clipped(found, plan.gradient_clip), active)
    optimizer.keep()
    return losses.cpu().numpy(), sizes


def _order(client: BatchedClient) -> Iterator[Tensor]:
    plan, device = client.plan, client.examples.labels.device
    n = len(client.examples)
    return batches(n, plan.batch_size, plan.seed, plan.shuffle, plan.drop_last, device=device)


def _batch(
    clients: Sequence[BatchedClient], views: Sequence[View], index: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and mask, (clients, largest batch, ...): short batches are padded."""
    longest = max(len(rows) for rows in index)
    features, labels, mask = [], [], []
    for client, view, rows in zip(clients, views, index, strict=True):
        x, y = client.examples.batch(rows)
        features.append(_padded(view(x, slice(None), len(rows)), longest))
        labels.append(_padded(y, longest))
        mask.append((torch.arange(longest, device=rows.device) < len(rows)).float())
    return torch.stack(features), torch.stack(labels), torch.stack(mask)


def _padded(batch: Tensor, longest: int) -> Tensor:
    """A short batch, padded with its first row, which any network can compute."""
    return torch.cat([batch, batch[:1].expand(longest - len(batch), *batch.shape[1:])])


def _clipped(gradients: Stack, limit: float | None) -> Stack:
    """Each client's gradients, scaled to at most this global L2 norm."""
    if limit is None:
        return gradients
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
    scale = (limit / (norms + 1e-6)).clamp(max=1)
    return {
        name: gradient * scale.reshape(-1, *[1] * (gradient.dim() - 1))
        for name, gradient in gradients.items()
    }


def _require_finite(tree: Tree, lr: float) -> None:
    for name, array in tree.items():
        if not np.isfinite(array).all():
            raise MethodError(f"training: tensor {name!r} is not finite: {diverged(lr)}")
