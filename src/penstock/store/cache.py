"""Hot rows of a store's attributes, kept on this host: which ones, and where they are.

The cache is made once, before batches are read: the ids that are read most often, as many as a
budget of bytes holds. Which these are is estimated from batches that are sampled without attributes
for this purpose, and from degrees where these say nothing. It is kept as arrays of the graph, in
shared memory that all workers of the host map, and never changes: nobody waits for anybody. Whether
a row comes from here or from its owner changes no byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.graph.schema import ArrayKey, Arrays
from penstock.kernels.arrays import Ids
from penstock.kernels.gather import Rows
from penstock.kernels.members import Members

MEMBERS: Final = "cache.members"
SIZE: Final = "cache.size"
# How much a node's degree counts beside one sampled read: only to tell nodes apart that no sampled
# batch has read.
_DEGREES_COUNT: Final = 1e-3


@dataclass(frozen=True, slots=True)
class CachedRows:
    """The cached rows of one attribute, and whose they are."""

    members: Members
    rows: Rows


def rows_key(node_type: str, name: str) -> ArrayKey:
    """Return the key of the cached rows of an attribute of nodes."""
    return ArrayKey("aid", node_type, f"cache.node.{name}")


def cached_rows(arrays: Arrays, node_type: str, name: str) -> CachedRows | None:
    """Return the cached rows of an attribute of nodes, if there are any."""
    words = arrays.get(ArrayKey("aid", node_type, MEMBERS))
    size = arrays.get(ArrayKey("aid", node_type, SIZE))
    rows = arrays.get(rows_key(node_type, name))
    if words is None or rows is None or size is None:
        return None
    return CachedRows(Members(words.array, int(size.array[0])), Rows(rows.array))


def chosen(
    counts: Mapping[str, npt.NDArray[np.float64]], row_bytes: Mapping[str, int], budget: int
) -> dict[str, Ids]:
    """Return the nodes whose rows are worth keeping: most reads for their bytes, within a budget.

    Args:
        counts: How often each node is read, by node type.
        row_bytes: The bytes of all cached attributes of a node, by node type.
        budget: Bytes for all of them.

    Returns:
        Rising ids by node type; a type of which nothing is kept is left out.
    """
    types = [name for name, size in row_bytes.items() if size and len(counts.get(name, ()))]
    if not types:
        return {}
    worth = np.concatenate([counts[name] / row_bytes[name] for name in types])
    sizes = np.concatenate([np.full(len(counts[name]), row_bytes[name]) for name in types])
    firsts = np.cumsum([0, *(len(counts[name]) for name in types)])
    order = np.argsort(-worth, kind="stable")
    taken = order[np.cumsum(sizes[order], dtype=np.int64) <= budget]
    taken = np.sort(taken[worth[taken] > 0])
    found = {}
    for number, name in enumerate(types):
        ids = taken[(taken >= firsts[number]) & (taken < firsts[number + 1])] - firsts[number]
        if len(ids):
            found[name] = ids.astype(np.int64)
    return found


def estimated(
    degrees: Mapping[str, Ids], batches: Iterable[Mapping[str, Ids]]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return how often nodes are likely to be read.

    Args:
        degrees: How often each node is a neighbour, by node type.
        batches: The distinct nodes of sampled batches, by node type.
    """
    counts = {}
    for name, of_type in degrees.items():
        most = max(int(of_type.max()) if len(of_type) else 0, 1)
        counts[name] = of_type.astype(np.float64) * (_DEGREES_COUNT / most)
    for nodes in batches:
        for name, ids in nodes.items():
            if name in counts:
                counts[name] += np.bincount(ids, minlength=len(counts[name]))
    return counts
