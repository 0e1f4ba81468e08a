"""A guard that starts for the first time, and one whose process has died."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
async def killed_guard_scene(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene whose first guard died with the signed update in its outbox."""

    async def die(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as dying:
        dying.setattr(scene.aggregator, "upload", die)
        with pytest.raises(ZeroDivisionError):
            await scene.run()
    assert scene.update.exists()
    return scene
