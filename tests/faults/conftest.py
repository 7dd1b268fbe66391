"""What tests of faults share: recipes of batches that went wrong go to the test's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.hub.recipes import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where recipes go; not among the user's."""
    folder = tmp_path / "recipes"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder
