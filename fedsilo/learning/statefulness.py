"""Whether a network keeps anything of the examples that it was trained on beside what its parameters learn.

Differential privacy clips what each example adds to a gradient, and adds noise to it. A running mean, a counter or an
attribute that a forward pass changes has neither: it would leave with the model, or be in the gradients of the examples
that come later. So two networks with the same weights see different random examples, and then the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from fedsilo.api.python_import import described
from fedsilo.errors import MethodError
from fedsilo.learning.training import seeded
from fedsilo.tasks.interface import LearningTask

EXAMPLES = 3
"""Of a batch."""

SPREAD = 0.1
"""Deviation of what is added to the weights, some of which may be zeros that hide what comes before them."""

_CPU = torch.device("cpu")


def require_stateless(build: Callable[[], nn.Module], task: LearningTask) -> None:
    """Check that forward passes in training mode change no tensor of a network, and that it remembers none of them.

    :param build: gives a network on the CPU, each time a new one, with whatever weights.
    :raises MethodError: naming the tensor that a pass changes; or that the network remembers examples, or fails.
    """
    with seeded(0, _CPU), torch.no_grad():
        networks = build().train(), build().train()
        for parameter in networks[0].parameters():
            if parameter.is_floating_point():
                parameter.add_(SPREAD * torch.randn(parameter.shape, dtype=parameter.dtype))
        networks[1].load_state_dict(networks[0].state_dict())
        *seen, probe = (_inputs(task) for _ in range(3))
        before = _bits(networks[0].state_dict())
        answers = [_answer(network, [own, probe]) for network, own in zip(networks, seen, strict=True)]
        after = _bits(networks[0].state_dict())
    changed = next((name for name, bits in before.items() if after.get(name) != bits), None)
    if changed is not None:
        raise MethodError(
            f"spec.privacy.differentialPrivacy: a forward pass in training mode changes tensor {changed!r} of the "
            "model, which nothing clips or noises; use a layer that keeps nothing of its inputs, such as GroupNorm, or "
            "name the tensor in spec.model.parameters.frozen"
        )
    if answers[0] != answers[1]:
        raise MethodError(
            "spec.privacy.differentialPrivacy: the model's outputs in training mode depend on the examples that it was "
            "given before, which nothing clips or noises; keep nothing of inputs in buffers or attributes"
        )


def _answer(network: nn.Module, batches: list[Tensor]) -> bytes:
    """Bits of the outputs for the last batch, after the ones before."""
    try:
        for number, batch in enumerate(batches):
            with seeded(number, _CPU):
                outputs = network(batch)
    except (Exception, SystemExit) as failure:
        raise MethodError(
            f"spec.model.name: the network fails on random examples in training mode: {described(failure)}; fit it to "
            "spec.data.inputShape"
        ) from failure
    return _bits({"": outputs})[""]


def _inputs(task: LearningTask) -> Tensor:
    shape = (EXAMPLES, *task.data.input_shape)
    return torch.randn(shape) if task.vocabulary is None else torch.randint(task.vocabulary, shape)


def _bits(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {name: tensor.detach().contiguous().numpy().tobytes() for name, tensor in tensors.items()}
