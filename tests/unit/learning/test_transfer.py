"""Knowledge transfer against the released code's numbers and against the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedsilo.learning.transfer import distillation, mmd, tempered_cross_entropy
from tests import reference_numbers

TEACHER = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]])


def test_mmd_and_its_gradient_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("map_pieces")
    one = torch.tensor(npz["mmd_a"], requires_grad=True)
    value = mmd(one, torch.tensor(npz["mmd_b"]))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(float(npz["mmd"]), rel=2e-5)
    assert one.grad is not None
    np.testing.assert_allclose(one.grad.numpy(), npz["mmd_grad_a"], rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("size", [1, 4])
def test_equal_features_are_no_distance_apart_and_have_a_finite_gradient(size: int) -> None:
    one = torch.ones(size, 3, requires_grad=True)
    value = mmd(one, torch.ones(size, 3))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == 0
    assert one.grad is not None
    assert one.grad.isfinite().all()


def test_distillation_is_the_tempered_kullback_leibler_divergence() -> None:
    logits = torch.tensor([[0.3, 0.1, -2.0], [1.0, 1.0, 1.0]], requires_grad=True)
    p, q = (TEACHER / 4).softmax(1), (logits / 4).softmax(1)
    wanted = 16 * (p * (p / q).log()).sum(1).mean()
    assert torch.allclose(distillation(TEACHER, logits, 4.0), wanted)
    assert distillation(TEACHER, TEACHER, 4.0).item() == pytest.approx(0, abs=1e-6)


def test_the_released_form_tempers_the_teacher_alone() -> None:
    logits = torch.tensor([[0.3, 0.1, -2.0], [1.0, 1.0, 1.0]])
    wanted = -((TEACHER / 4).softmax(1) * functional.log_softmax(logits, 1)).sum(1).mean()
    assert torch.allclose(tempered_cross_entropy(TEACHER, logits, 4.0), wanted)
