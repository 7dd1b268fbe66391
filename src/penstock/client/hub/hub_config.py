"""What a new hub is told: where to be found, which graph to serve, how to run its pool."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Final, Literal, TypedDict

import numpy as np

from penstock.client.naming import search_path
from penstock.client.sizes import parse_bytes
from penstock.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.sharing import segments_of
from penstock.wire.messages import HubConfig
from penstock.workers.limits import MOST_WORKERS, auto_workers

_SIZES: Final = ("soft_memory", "hard_memory", "max_arena_bytes")
_COUNTS: Final = ("worker_concurrency", "max_batches", "max_channels", "max_connections")
# What may be left without a limit.
_UNLIMITED: Final = ("max_batches", "max_age", *_SIZES)


class PoolOptions(TypedDict, total=False):
    """How the pool of a hub is run. Times in seconds, memory in bytes or as "512MB".

    worker_concurrency                  batches a worker holds at once
    beat_every, silence, start_limit    heartbeats; how long a worker may be without one, or start
    max_batches, max_age                when a worker is replaced
    soft_memory, hard_memory            private memory past which it is replaced, or killed
    max_channels, max_connections       what the hub has room for
    max_arena_bytes                     slots of all channels together
    slow_step                           seconds after which a step is named in the log
    trim_after                          seconds after which an unused slot gives its pages back
    """

    worker_concurrency: int
    beat_every: float
    silence: float
    start_limit: float
    max_batches: int | None
    max_age: float | None
    soft_memory: int | str | None
    hard_memory: int | str | None
    max_channels: int
    max_connections: int
    max_arena_bytes: int | str | None
    slow_step: float
    trim_after: float


class HubConfigSource:
    """Makes `HubConfig`, anew for each hub: out-edges may have been made since, the pool resized.

    `listener` is a descriptor of the socket that all of them listen on, one after the other.
    """

    def __init__(
        self,
        graph: Graph,
        address: str,
        workers: int | Literal["auto"],
        options: PoolOptions,
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
            **self._options,
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


def settled(options: PoolOptions) -> dict[str, Any]:
    """The options as a hub is told them: TypeError for one there is none of, ValueError by name."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in PoolOptions.__annotations__:
            there = ", ".join(PoolOptions.__annotations__)
            raise TypeError(f"there is no option {name!r}; there are {there}")
        found[name] = _option(name, value.item() if isinstance(value, np.generic) else value)
    return found


def _option(name: str, value: Any) -> Any:
    if value is None and name in _UNLIMITED:
        return None
    if name in _SIZES:
        return parse_bytes(value, name)
    kind, words = (int, "an integer") if name in _COUNTS else ((int, float), "a number")
    if isinstance(value, bool) or not isinstance(value, kind) or not value > 0:
        raise ValueError(f"{name} is {value!r}; expected {words} above 0")
    return value


def checked_workers(given: Any, least: int, expected: str) -> int:
    """A number of workers; ValueError that says what was expected instead."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ValueError(f"num_workers is {given!r}; expected {expected}")
    if int(given) > MOST_WORKERS:
        raise ValueError(f"num_workers is {given!r}; expected {MOST_WORKERS} at most")
    return int(given)


def _at_least_one(workers: Any) -> int:
    return checked_workers(workers, 1, "'auto', or at least 1")
