"""What tests of the rank's side share: a pool that need not be started for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client.hub.hub_process import HubProcess
from tests.client.graphs import backend_of, small_graph


@pytest.fixture(scope="module")
def pool() -> Iterator[HubProcess]:
    """For tests that leave it as it was: its hub and its two workers live as long as the module.

    Whoever kills, stops or resizes has a pool of its own.
    """
    with small_graph() as graph, HubProcess(graph, 2) as hub:
        with backend_of(hub):  # its workers are there before any test looks who is
            yield hub
