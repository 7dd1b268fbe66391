"""A pool that the loaders of many tests share: to start one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import penstock as ps
from penstock.loader.source.hubs import Lease
from penstock.loader.source.sources import source_of


@contextmanager
def pools_kept(*given: Any, workers: int = 2) -> Iterator[None]:
    """Keep a pool for each of these data.

    Loaders of the same content use the same pool for as long as anybody has a lease of it.
    """
    with ExitStack() as stack:
        for data in given:
            hub = stack.enter_context(closing(Lease(source_of(data).graph, workers))).hub()
            with ps.SharedDistSamplingBackend(hub, ps.NeighborSpec(num_neighbors=(1,))) as backend:
                backend.init_backend()  # its workers, which are started when somebody needs them
        yield
