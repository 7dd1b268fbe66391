"""A small graph in parts, and loaders of it: what the tests with servers share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import penstock as ps
from penstock.graph import Graph
from penstock.testing.digests import digest_of
from tests.loader.epochs import torch  # its warnings are dealt with there
from tests.processes import PATIENCE_S, until

__all__ = ["TRAIN", "WAYS", "Reading", "everyday", "joined", "small_graph", "torch", "whole_epoch"]

NODES, TRAIN, BATCH = 400, 240, 6
# Who puts batches together: the reader's own process, or workers of its hub.
WAYS = ("inline", "workers")


def small_graph(shift: float = 0.0) -> Graph:
    """A few hundred nodes; another version of itself with another shift."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(NODES, 6)).astype("float32")
    x[7] += shift
    return Graph.from_coo(
        rng.integers(0, NODES, (2, 8 * NODES)),
        NODES,
        x=x,
        y=rng.integers(0, 4, NODES),
        edge_weight=rng.random(8 * NODES),
        edge_attr=rng.random((8 * NODES, 2), np.float32),
        train=rng.permutation(NODES)[:TRAIN],
        val=np.arange(20),
    )


def everyday(data: Any, way: str = "inline", **options: Any) -> Any:
    """Forty batches, few of which are made ahead."""
    wanted: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3, "prefetch": 2}
    if way == "inline":
        wanted["num_workers"] = 0
    return ps.NeighborLoader(data, [4, 3], "train", **(wanted | options))


def whole_epoch(graph: Graph, epochs: int = 1) -> list[str]:
    """What any reader must get."""
    with everyday(graph) as loader:
        return [digest_of(batch) for _ in range(epochs) for batch in loader]


@contextmanager
def joined(addresses: Any, **options: Any) -> Iterator[Any]:
    with ps.connect(addresses, **({"num_workers": 2} | options)) as data:
        yield data


class Reading:
    """Reads the rest of an iterator in a thread: a loader that waits must not hold up the test."""

    def __init__(self, batches: Any) -> None:
        self.seen: list[str] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._read, args=(batches,))
        self._thread.start()

    def _read(self, batches: Any) -> None:
        try:
            for batch in batches:
                self.seen.append(digest_of(batch))
        except Exception as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.seen) >= count or self.is_over, f"{count} batches were read")
        assert self.error is None, self.error

    def finish(self) -> list[str]:
        """All that was read; nothing may have gone wrong."""
        self._thread.join(PATIENCE_S)
        assert self.is_over, f"it still waits, after {len(self.seen)} batches"
        if self.error is not None:
            raise self.error
        return self.seen
