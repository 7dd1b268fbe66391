"""The configuration that a new hub gets: its address, its graph, and how to run its pool."""

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
    """Makes a `HubConfig` for each start of a hub.

    It is made anew each time, because out-edges may have been computed or the pool resized since.
    All hubs listen on one socket, one after the other; `listener` is a descriptor of it.
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
        """Return the message, and the descriptors that are sent with it."""
        config = HubConfig(
            address=self.address,
            graph=self._graph.handle(),
            workers=self.workers,
            search_path=self._search_path,
            pool=self._options,
        )
        return config, (listener, *self._graph.descriptors)


def _check_handed_on(graph: Graph) -> None:
    """Raise ValueError if this process cannot pass the graph's memory on to others."""
    for segment in segments_of(graph.arrays):
        if isinstance(segment.handle, MemfdHandle) and not segment.descriptors:
            raise ValueError(
                "graph was attached here, and its memory belongs to another process: only that one "
                "can start a hub for it. Join its hub by penstock.connect(address), or save() the "
                "graph and open() it here"
            )


def settled(options: PoolKeywords) -> PoolOptions:
    """Return the options in the form a hub gets them.

    Raises:
        TypeError: There is no option of that name.
        ValueError: A value is not allowed; the error names the option.
    """
    check_names(options, "option", PoolOptions, beside=("num_workers", "address"))
    pool = parsed(PoolOptions, options)
    pool.check()
    return pool


def checked_workers(given: Any, least: int, expected: str) -> int:
    """Return a number of workers; ValueError with `expected` in its text if it is not one."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ValueError(f"num_workers is {given!r}; expected {expected}")
    if int(given) > MOST_WORKERS:
        raise ValueError(f"num_workers is {given!r}; expected {MOST_WORKERS} at most")
    return int(given)


def _at_least_one(workers: Any) -> int:
    return checked_workers(workers, 1, "'auto', or at least 1")
