"""A third party's declaration that fails is an error of the method's, and the guard goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import MethodError, PolicyRefused
from fedsilo.methods.method import Method
from fedsilo.transforms.secure_sum.guard import SecureSumGuardSide
from fedsilo.wire import SigningKey, Task
from tests.unit.agent.scene import Scene


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (KeyError("work"), MethodError, "^the declaration of method fedavg failed: KeyError: 'work'$"),
        (PolicyRefused("as it is"), PolicyRefused, "^as it is$"),
    ],
    ids=["anything", "an error of fedsilo"],
)
def test_settings_that_cannot_be_derived_are_the_methods_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    error: type[Exception],
    message: str,
) -> None:
    def failing(*_: Any) -> Any:
        raise raised

    scene = Scene(tmp_path)
    identity = scene.check.guard_place(scene.volume, SigningKey.generate()).identity
    assert identity is not None
    sums = SecureSumGuardSide(scene.check.method, scene.check.reference, identity)
    monkeypatch.setattr(Method, "silo_settings", failing)
    with pytest.raises(error, match=message):
        sums.broadcast(Task(**scene.honest))
