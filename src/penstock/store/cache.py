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
# The shape of rates that are the same for all nodes of a class.
_ALIKE: Final = 1e6
# How much the largest degree counts beside one read.
_HARDLY: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CachedRows:
    """The cached rows of one attribute, and whose they are."""

    members: Members
    rows: Rows


def is_cached(key: ArrayKey) -> bool:
    """Return whether an array belongs to the cache."""
    return key.group == "aid" and key.name.startswith("cache.")


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
    members = Members(words.array.view(np.uint64), int(size.array[0]))
    return CachedRows(members, Rows(rows.array))


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
    """Return how often nodes are likely to be read, from a sample of batches and from degrees.

    A node's own reads in the sample say little if they are few; the reads of all nodes of like
    degree say more, where reads follow degrees. How far they do is seen in the sample: the reads of
    a node are taken for draws of a rate that varies among nodes of like degree (Poisson, with a
    gamma distribution of rates), and the expected rate of each node is returned. Where degrees say
    all, it is the mean of its likes; where they say nothing, it is the node's own.

    Args:
        degrees: How often each node is a neighbour, by node type.
        batches: The distinct nodes of sampled batches, by node type.
    """
    reads = {name: np.zeros(len(of_type)) for name, of_type in degrees.items()}
    for nodes in batches:
        for name, ids in nodes.items():
            if name in reads:
                reads[name] += np.bincount(ids, minlength=len(reads[name]))
    return {name: _rates(reads[name], degrees[name]) for name in reads}


def _rates(reads: npt.NDArray[np.float64], degrees: Ids) -> npt.NDArray[np.float64]:
    # Eight classes for each doubling of the degree.
    classes = np.floor(8 * np.log2(degrees + 1.0)).astype(np.int64)
    count = np.maximum(np.bincount(classes), 1)
    mean = np.bincount(classes, reads) / count
    variance = np.bincount(classes, reads * reads) / count - mean * mean
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.where(variance > mean, mean * mean / (variance - mean), _ALIKE)
        shape = np.clip(shape, 0.0, _ALIKE)
        own = 1.0 / (1.0 + np.where(mean > 0, shape / mean, 0.0))
    rates = own[classes] * (reads + shape[classes])
    # Degrees tell nodes apart that are alike otherwise, and those that no batch has read.
    hardly = degrees * (_HARDLY / (1.0 + float(degrees.max(initial=0))))
    return np.asarray(rates + hardly, np.float64)
