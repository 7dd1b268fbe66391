"""What tests of stores share."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.hub.recipes import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where recipes of batches that went wrong go; not among the user's."""
    folder = tmp_path / "recipes"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder
