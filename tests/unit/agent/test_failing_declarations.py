"""A third party's declaration that fails is an error of the method's, and the guard goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import MethodError, PolicyRefused
from fedsilo.methods.method import Method
from fedsilo.wire import Task
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
    monkeypatch.setattr(Method, "silo_settings", failing)
    with pytest.raises(error, match=message):
        scene.check.broadcast(Task(**scene.honest))
