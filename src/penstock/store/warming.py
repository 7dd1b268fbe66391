"""Fills a store's cache of rows: samples some batches, counts, chooses and fetches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from penstock.graph.derived import made_arrays
from penstock.graph.progress import Progress, shown
from penstock.graph.schema import ArrayKey
from penstock.graph.shared import SharedArray
from penstock.graph.topology import Spec as ArraySpec
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.members import Members
from penstock.rpc.buffer_pool import BufferPool
from penstock.sampling.attributes import Column
from penstock.sampling.batches import Batches
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.buffered import BufferedBatches
from penstock.sampling.collate import NeighborBatches
from penstock.sampling.kinds import kind_of
from penstock.sampling.names import parsed
from penstock.sampling.request import Request
from penstock.sampling.spec import Spec
from penstock.store.batches import batches_of_store
from penstock.store.cache import MEMBERS, SIZE, Rates, chosen, estimated, rows_key
from penstock.store.graph import StoreGraph
from penstock.wire.frames import BatchWriter, read

log = logging.getLogger(__name__)

# Batches that are sampled, at most, to see which rows are read.
PRESAMPLED: Final = 64
_FIRST_BYTES: Final = 1 << 20
# A part says how often its neighbours are such of so many nodes at least, and of four times as many
# as the cache has room for.
_LEAST_COUNTED: Final = 1 << 20


def warm(
    graph: StoreGraph, spec: Spec, requests: Iterable[Request], progress: Progress = None
) -> None:
    """Fill the cache of a graph for batches of a spec, unless that was done or it has none.

    Args:
        graph: The graph; its `cache_bytes` are filled.
        spec: How batches are sampled.
        requests: Some batches, of all of an epoch; they are sampled without attributes.
        progress: Whether to show how far it is.
    """
    if not graph.wants_cache:
        return
    columns = _columns(kind_of(spec).batches(spec, graph))
    if not columns:  # another spec may read rows
        return
    with graph.making_cache() as is_mine:
        if is_mine:
            began = time.monotonic()
            by_type = _names_by_type(graph, columns)
            rates = _rates(graph, by_type, spec, requests)
            arrays = _filled(graph, by_type, rates, progress)
            graph.take_cache(arrays)
            log.info("the cache was filled in %.1f s", time.monotonic() - began)


def _columns(batches: Batches) -> list[Column]:
    """Return the attributes of nodes that go with a batch."""
    if isinstance(batches, NeighborBatches):
        return list(batches.shape.node_columns)
    return list(batches.node_columns) if isinstance(batches, BufferedBatches) else []


def _names_by_type(graph: StoreGraph, columns: list[Column]) -> dict[str, list[str]]:
    """Return the names of attributes by node type."""
    by_type: dict[str, list[str]] = {}
    for column in columns:
        _, name = parsed(column.name)
        by_type.setdefault(graph.node_types[column.owner], []).append(name)
    return by_type


def _row_bytes(graph: StoreGraph, by_type: Mapping[str, list[str]]) -> dict[str, int]:
    return {
        owner: sum(graph.row_bytes(owner, name) for name in names)
        for owner, names in by_type.items()
    }


def _rates(
    graph: StoreGraph, by_type: Mapping[str, list[str]], spec: Spec, requests: Iterable[Request]
) -> dict[str, Rates]:
    degrees = {
        owner: graph.neighbor_counts(owner, max(_LEAST_COUNTED, 4 * graph.cache_bytes // size))
        for owner, size in _row_bytes(graph, by_type).items()
        if size
    }
    return estimated(degrees, _nodes_of(graph, spec, requests))


def _nodes_of(
    graph: StoreGraph, spec: Spec, requests: Iterable[Request]
) -> Iterator[dict[str, Ids]]:
    """Yield the distinct nodes of batches, by type."""
    bare = kind_of(spec).bare(spec)
    batches = batches_of_store(graph, bare, kind_of(bare).batches(bare, graph))
    memory = BufferPool(1)
    for request in requests:
        arrays = _made(batches, request, memory)
        named = ((parsed(name), array) for name, array in arrays.items())
        yield {str(owner): np.unique(array) for (owner, word), array in named if word == "n_id"}


def _made(batches: Batches, request: Request, memory: BufferPool) -> dict[str, Array]:
    room = _FIRST_BYTES
    while True:
        lent = memory.lend(room)
        try:
            with BatchWriter(lent) as writer:
                batches.make(request, writer, lambda stage: None)
                return dict(read(lent, writer.commit()))
        except SlotTooSmall as small:
            room = small.needed


def _filled(
    graph: StoreGraph,
    by_type: Mapping[str, list[str]],
    rates: Mapping[str, Rates],
    progress: Progress,
) -> dict[ArrayKey, SharedArray]:
    """Fetch the rows that are worth keeping."""
    row_bytes = _row_bytes(graph, by_type)
    wanted = chosen(rates, row_bytes, graph.cache_bytes)
    total = sum(len(ids) * row_bytes[owner] for owner, ids in wanted.items())
    arrays: dict[ArrayKey, SharedArray] = {}
    done = 0
    with shown("filling the cache", progress) as report:
        for owner, ids in wanted.items():
            for name in by_type[owner]:
                arrays[rows_key(owner, name)] = _fetched(graph, owner, name, ids)
                done += len(ids) * graph.row_bytes(owner, name)
                if report is not None:
                    report(done, total)
            members = Members.of(ids, graph.num_nodes(owner or None))
            arrays[ArrayKey("aid", owner, MEMBERS)] = SharedArray.from_array(
                members.words.view(np.int64)
            )
            arrays[ArrayKey("aid", owner, SIZE)] = SharedArray.from_array(
                np.array([members.size], np.int64)
            )
    return arrays


def _fetched(graph: StoreGraph, owner: str, name: str, ids: Ids) -> SharedArray:
    source = graph.node_features(name, owner or None, stored=True)
    wanted: list[ArraySpec] = [(source.dtype, (len(ids), *source.row_shape))]
    (made,) = made_arrays(wanted, None, lambda out: source.gather(ids, out))
    return made
