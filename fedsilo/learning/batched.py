"""Local training of several clients at once: their weights stacked, their batches side by side.

Sums are those of `fedsilo.learning.training.fit` in another order, so that results agree to rounding and not to the
byte. It pays where one client's batch leaves the device idle. Of the stacked weights every client has a row of its
own, and steps as it would alone, up to rounding, with the optimisers of `fedsilo.learning.optimizers`.
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
from fedsilo.learning.constants import require_constants
from fedsilo.learning.divergence import divergence_message
from fedsilo.learning.examples import Examples, batches
from fedsilo.learning.models import Model, load_tree
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.plan import View
from fedsilo.learning.state_names import named_parameters
from fedsilo.learning.training import LocalTraining, TrainingReport, has_batch_norm, steps_of

Stack = dict[str, Tensor]
"""Tensors of all clients by name, one after the other along the first dimension."""


class StackedOptimizer:
    """One optimiser of each client's, all of the same settings.

    :param stack: the weights, changed in place by `step`.
    :param trained: names of those that learn.
    :param plans: of each row; they differ in seeds and kept states only.
    """

    def __init__(self, stack: Stack, trained: Sequence[str], plans: Sequence[LocalTraining]) -> None:
        self._stack = stack
        self._plans = list(plans)
        self._plan = plans[0]
        self._trained = list(trained)
        kinds = ("momentum_buffer",) if self._plan.optimizer == "sgd" else ("exp_avg", "exp_avg_sq")
        states = [plan.kept or OptimizerState() for plan in plans]
        self._state = {kind: {name: self._rows(kind, name, states) for name in trained} for kind in kinds}
        taken = {name: [float(state.steps.get(name, 0)) for state in states] for name in trained}
        self._steps = {
            name: torch.tensor(counts, dtype=stack[name].dtype, device=stack[name].device)
            for name, counts in taken.items()
        }

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], active: int) -> None:
        """Change the first so many rows by their gradients."""
        for name, gradient in gradients.items():
            weight = self._stack[name][:active]
            if self._plan.optimizer == "sgd":
                self._sgd(name, weight, gradient, active)
            else:
                self._adam(name, weight, gradient, active)

    def keep(self) -> None:
        """Replace the state that each client's plan brought by its last."""
        kinds = self._state if self._plan.optimizer != "sgd" or self._plan.momentum else {}
        trees = {
            kind: {name: self._state[kind][name].cpu().numpy() for name in self._trained} for kind in kinds
        }
        steps = {name: taken.tolist() for name, taken in self._steps.items()}
        for row, plan in enumerate(self._plans):
            if plan.kept is not None:
                own = {
                    kind: {name: array[row] for name, array in tree.items()} for kind, tree in trees.items()
                }
                counts = {name: int(taken[row]) for name, taken in steps.items()}
                plan.kept.replace(OptimizerState(own, {} if plan.optimizer == "sgd" else counts))

    def _rows(self, kind: str, name: str, states: Sequence[OptimizerState]) -> Tensor:
        """What the clients kept of a parameter; zero where a client kept nothing."""
        like = self._stack[name]
        rows = torch.zeros_like(like)
        for row, state in enumerate(states):
            if name in state.trees.get(kind, {}):
                rows[row] = torch.tensor(np.array(state.trees[kind][name]), device=like.device)
        return rows

    def _sgd(self, name: str, weight: Tensor, gradient: Tensor, active: int) -> None:
        plan, momentum = self._plan, self._state["momentum_buffer"][name][:active]
        if plan.weight_decay:
            # Not in place: parameters that are added to each other have one gradient between them.
            gradient = gradient.add(weight, alpha=plan.weight_decay)
        momentum.mul_(plan.momentum).add_(gradient)
        direction = gradient.add(momentum, alpha=plan.momentum) if plan.nesterov else momentum
        weight.sub_(direction, alpha=plan.lr)

    def _adam(self, name: str, weight: Tensor, gradient: Tensor, active: int) -> None:
        plan, (first, second) = self._plan, self._plan.betas
        mean, square = self._state["exp_avg"][name][:active], self._state["exp_avg_sq"][name][:active]
        steps = self._steps[name][:active]
        steps.add_(1)
        if plan.optimizer == "adamw":
            weight.mul_(1 - plan.lr * plan.weight_decay)
        elif plan.weight_decay:
            gradient = gradient.add(weight, alpha=plan.weight_decay)
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        per_row = steps.reshape(-1, *[1] * (gradient.dim() - 1))
        corrected = square.sqrt() / (1 - second**per_row).sqrt() + plan.eps
        weight.sub_(mean / corrected / (1 - first**per_row), alpha=plan.lr)


Tree = dict[str, np.ndarray]


@dataclass(frozen=True)
class BatchedClient:
    """One client among several that are trained at once, with its examples and its plan.

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
    if [name for name, _ in named_parameters(model)] != [name for name, _ in model.named_parameters()]:
        raise MethodError(
            "the network's state has other names than its parameters, by which clients are trained together; train one "
            "client at a time"
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
    require_constants(model)
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
        optimizer.step(_clipped_gradients(found, plan.gradient_clip), active)
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
        features.append(_padded_batch(view(x, slice(None), len(rows)), longest))
        labels.append(_padded_batch(y, longest))
        mask.append((torch.arange(longest, device=rows.device) < len(rows)).float())
    return torch.stack(features), torch.stack(labels), torch.stack(mask)


def _padded_batch(batch: Tensor, longest: int) -> Tensor:
    """A short batch, padded with its first row, which any network can compute."""
    return torch.cat([batch, batch[:1].expand(longest - len(batch), *batch.shape[1:])])


def _clipped_gradients(gradients: Stack, limit: float | None) -> Stack:
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
            raise MethodError(f"training: tensor {name!r} is not finite: {divergence_message(lr)}")
