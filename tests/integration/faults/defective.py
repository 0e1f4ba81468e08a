"""Programs with a planted defect, in the place of `tests.faults.role`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typing_extensions import override

from fedsilo.files.durable import DiskStep
from fedsilo.silo import private_state
from tests.faults import role
from tests.faults.injector import Injector


class Forgetful(Injector):
    """An injector whose process syncs no directory."""

    @override
    def _perform(self, step: DiskStep, perform: Callable[[], None]) -> None:
        if step.operation != "sync-directory":
            super()._perform(step, perform)


def main(arguments: list[str]) -> int:
    """Run a program as it would be without syncs of directories, and without digests of private state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(role, "Injector", Forgetful)
        patch.setattr(private_state, "require_content", lambda *_: None)
        return role.main(arguments)
