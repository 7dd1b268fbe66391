"""Choose the nodes whose rows a GPU keeps: those that batches read most often.

As for a host's cache of a store (`store.cache`): some batches are sampled without attributes, and
degrees tell more of nodes that these have read seldom. Here the loader's own process makes these
batches, before its first one. Of a graph at a server the degrees are not asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from penstock.client.channel.batch import Batch
from penstock.graph import Graph
from penstock.graph.schema import Side
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Ids
from penstock.loader.source.adhoc import AdhocBatches
from penstock.loader.source.inputs import Inputs
from penstock.loader.source.remote_adhoc import RemoteAdhocBatches
from penstock.sampling.names import parsed
from penstock.store.cache import Degrees, chosen, estimated
from penstock.store.graph import StoreGraph

# Batches that are sampled, at most, to see which rows are read.
PRESAMPLED: Final = 64
# Edges that are looked at for degrees, at most, and how many of these lie side by side.
_MOST_EDGES: Final = 1 << 28
_BLOCK: Final = 1 << 20
# Nodes of which a store's parts say how often they are neighbours.
_LEAST_COUNTED: Final = 1 << 20
# Epochs from which no batch is read: no job comes that far.
_EPOCH: Final = 2**62


def hot_nodes(
    graph: GraphView,
    side: Side,
    row_bytes: Mapping[str, int],
    budget: int,
    batches: Iterable[Mapping[str, Ids]],
) -> dict[str, Ids]:
    """Return the nodes whose rows are worth a budget of bytes: rising ids, by type.

    Args:
        graph: The graph.
        side: Along which edges neighbours are found.
        row_bytes: The bytes of a node's rows, by type.
        budget: Bytes for all of them.
        batches: The distinct nodes of sampled batches, by type.
    """
    degrees = {
        owner: _degrees(graph, side, owner, max(_LEAST_COUNTED, 4 * budget // size))
        for owner, size in row_bytes.items()
        if size
    }
    return chosen(estimated(degrees, batches), row_bytes, budget)


def _degrees(graph: GraphView, side: Side, owner: str, most: int) -> Degrees:
    """Return how often nodes of a type are neighbours, as far as that is easily said."""
    if isinstance(graph, StoreGraph):
        return graph.neighbor_counts(owner, most)
    size = graph.num_nodes(owner or None)
    if not isinstance(graph, Graph):
        return Degrees(np.empty(0, np.int64), np.empty(0), size)
    counts = np.zeros(size, np.int64)
    for kind in graph.edge_types:
        if kind[0 if side == "in" else 2] == owner:
            for neighbors in _blocks(graph.own_rows(kind, side).neighbors):
                counts += np.bincount(neighbors, minlength=size)
    ids = np.flatnonzero(counts)
    return Degrees(ids, counts[ids].astype(np.float64), size)


def _blocks(neighbors: Ids) -> Iterator[Ids]:
    """Yield all neighbours in blocks, or some of them if there are very many."""
    total = -(-len(neighbors) // _BLOCK)
    step = max(1, -(-len(neighbors) // _MOST_EDGES))
    for block in range(0, total, step):
        yield neighbors[block * _BLOCK : (block + 1) * _BLOCK]


def presampled(
    maker: AdhocBatches | RemoteAdhocBatches,
    inputs: Inputs,
    batch_size: int,
    seed: int,
    *,
    shuffle: bool,
) -> Iterator[dict[str, Ids]]:
    """Yield the distinct nodes of batches from all of the inputs, by type.

    Args:
        maker: Makes batches without attributes.
        inputs: The loader's inputs.
        batch_size: How many of them a batch has.
        seed: Of the draws.
        shuffle: Whether batches have inputs from anywhere, or consecutive ones.
    """
    total = inputs.num
    if not total:
        return
    size = min(batch_size, total)
    draw = np.random.default_rng(seed)
    for number in range(PRESAMPLED):
        if shuffle:
            places = np.unique(draw.integers(0, total, size))
        else:
            first = number * (total - size) // PRESAMPLED
            places = np.arange(first, first + size)
        yield _nodes_of(maker.make(inputs.at(places), seed, _EPOCH + number, 0))


def _nodes_of(batch: Batch) -> dict[str, Ids]:
    named = ((parsed(name), array) for name, array in batch.arrays.items())
    return {str(owner): np.unique(array) for (owner, word), array in named if word == "n_id"}
