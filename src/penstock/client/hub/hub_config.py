"""What a new hub is told: where to be found, which graph to serve, how to run its pool."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal

from penstock.client.keywords import check_names, parsed
from penstock.client.naming import search_path
from penstock.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.sharing import segments_of
from penstock.option_types import PoolKeywords
from penstock.options import PoolOptions
from penstock.wire.messages import HubConfig
from penstock.workers.limits import MOST_WORKERS, auto_workers


class HubConfigSource:
    """Makes `HubConfig`, anew for each hub: out-edges may have been made since, the pool resized.

    `listener` is a descriptor of the socket that all of them listen on, one after the other.
    """

    def __init__(
        self,
        graph: Graph,
        address: str,
        workers: int | Literal["auto"],
        options: PoolKeywords,
    ) -> None:
        _check_handed_on(graph)
        self._graph = graph
        self.address = address
        self.workers = auto_workers() if workers == "auto" else _at_least_one(workers)
        self._options = settled(options)
        self._search_path = search_path()

    def __call__(self, listener: int) -> tuple[HubConfig, Sequence[int]]:
        """The message, and the descriptors that go with it."""
        config = HubConfig(
            address=self.address,
            graph=self._graph.handle(),
            workers=self.workers,
            search_path=self._search_path,
            pool=self._options,
        )
        return config, (listener, *self._graph.descriptors)


def _check_handed_on(graph: Graph) -> None:
    """ValueError if this process cannot hand the graph's memory on to others."""
    for segment in segments_of(graph.arrays):
        if isinstance(segment.handle, MemfdHandle) and not segment.descriptors:
            raise ValueError(
                "graph was attached here, and its memory belongs to another process: only that one "
                "can start a hub for it. Join its hub by penstock.connect(address), or save() the "
                "graph and open() it here"
            )


def settled(options: PoolKeywords) -> PoolOptions:
    """The options as a hub is told them: TypeError for one there is none of, ValueError by name."""
    check_names(options, "option", PoolOptions)
    pool = parsed(PoolOptions, options)
    pool.check()
    return pool


def checked_workers(given: Any, least: int, expected: str) -> int:
    """A number of workers; ValueError that says what was expected instead."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ValueError(f"num_workers is {given!r}; expected {expected}")
    if int(given) > MOST_WORKERS:
        raise ValueError(f"num_workers is {given!r}; expected {MOST_WORKERS} at most")
    return int(given)


def _at_least_one(workers: Any) -> int:
    return checked_workers(workers, 1, "'auto', or at least 1")
