"""Where the tests find things outside the package."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

needs_images = pytest.mark.skipif(
    not (SHARED / "data").is_dir(),
    reason="the real image data (shared/data beside the repository) are not on this machine",
)
