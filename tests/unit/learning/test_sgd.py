"""`SGD` is `torch.optim.SGD` to the byte, without PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from fedsilo.learning.sgd import SGD

TRAIN_ONCE = """
import sys
import torch
from fedsilo.learning.devices import prepare_torch
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.learning.training import LocalTraining, fit
prepare_torch(1)
model = Model(torch.nn.Flatten(), torch.nn.Linear(4, 2))
for optimizer in ("sgd", "adamw"):
    plan = LocalTraining(lr=0.1, optimizer=optimizer, momentum=0.9)
    fit(model, Examples(torch.rand(8, 4), torch.arange(8) % 2), plan)
print("torch._dynamo" in sys.modules, model.classifier.weight.isfinite().all().item())
"""


def _parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((3, 5), (3,), (2,))]


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "nesterov"),
    [
        (0.0, 0.0, False),
        (0.9, 0.0, False),
        (0.0, 0.01, False),
        (0.9, 0.01, False),
        (0.9, 0.0, True),
        (0.9, 0.01, True),
    ],
    ids=str,
)
def test_the_same_bytes_as_pytorch(momentum: float, weight_decay: float, nesterov: bool) -> None:
    ours, theirs = _parameters(), _parameters()
    sgd = SGD(ours, 0.1, momentum, weight_decay, nesterov=nesterov)
    optimizer = torch.optim.SGD(theirs, 0.1, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
    inputs = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(1))
    for step, x in enumerate(inputs):
        for weight, bias, seldom in (ours, theirs):
            loss = torch.nn.functional.linear(x, weight, bias).square().sum()
            # The last parameter has a gradient in every other step only, and keeps its momentum meanwhile.
            torch.autograd.backward(loss + seldom.sum() if step % 2 else loss)
        sgd.step()
        optimizer.step()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)
        sgd.zero_grad()
        optimizer.zero_grad()
        assert all(one.grad is None for one in ours)


def test_sparse_gradients_too() -> None:
    embeddings = [torch.nn.Embedding(5, 3, sparse=True) for _ in range(2)]
    embeddings[1].load_state_dict(embeddings[0].state_dict())
    sgd, optimizer = (
        SGD(embeddings[0].parameters(), 0.1, 0.9),
        torch.optim.SGD(embeddings[1].parameters(), 0.1, momentum=0.9),
    )
    for places in ([0, 1], [1, 4]):
        for embedding in embeddings:
            embedding.zero_grad()
            torch.autograd.backward(embedding(torch.tensor(places)).square().sum())
        sgd.step()
        optimizer.step()
        assert torch.equal(embeddings[0].weight, embeddings[1].weight)


@pytest.mark.thorough
def test_training_does_not_load_the_compiler() -> None:
    ran = subprocess.run([sys.executable, "-c", TRAIN_ONCE], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
