"""Fills the cache of a graph in parts before a channel's first batch is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.client.channel.registration import Registration
from penstock.graph.view import GraphView
from penstock.sampling.inputs import request_of
from penstock.sampling.request import Request


def warm_for(graph: GraphView, registration: Registration) -> None:
    """Fill the cache for the batches of a channel, if the graph is to have one.

    Args:
        graph: The graph in parts.
        registration: The channel.
    """
    from penstock.store.graph import StoreGraph
    from penstock.store.warming import PRESAMPLED, warm

    if isinstance(graph, StoreGraph) and graph.wants_cache:
        warm(graph, registration.spec, _some(registration, PRESAMPLED))


def _some(registration: Registration, most: int) -> Iterator[Request]:
    """Yield batches from all of an epoch, or of several if an epoch has few."""
    feed, given = registration.feed, registration.inputs.given()
    total = registration.plan().num_batches
    if total == 0:
        return
    each = min(most, total)
    for number in range(most):
        epoch, place = divmod(number, each)
        yield request_of(feed, given, _EPOCH + epoch, place * total // each)


# Epochs from which no batch is read: no job comes that far.
_EPOCH: Final = 2**62
