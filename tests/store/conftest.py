"""What tests of stores share: a watch for leaks over tests that share servers and hubs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.hub.recipes import FOLDER_VARIABLE
from tests.leaks import MARK, Holdings, leaks_since


@pytest.fixture(scope="module")
def no_leaks_in_all() -> Iterator[None]:
    """As `no_leaks`, but over all tests of a module: they share servers and hubs.

    A module asks for it: `pytestmark = pytest.mark.usefixtures("no_leaks_in_all")`.
    """
    mark = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        before = Holdings.now(mark)
        yield
        if leaks := leaks_since(before, mark):
            pytest.fail("left behind:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture(autouse=True)
def recipes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where recipes of batches that went wrong go; not among the user's."""
    folder = tmp_path / "recipes"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder
