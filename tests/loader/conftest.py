"""What tests of loaders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def small_pool() -> Iterator[None]:
    """A pool for all loaders of `small_data` with workers that a module has."""
    from tests.loader.epochs import small_data
    from tests.loader.pools import pools_kept

    with pools_kept(small_data(), workers=1):
        yield
