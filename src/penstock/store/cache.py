"""Hot rows of a store's attributes, kept on this host: which ones, and where they are.

The cache is made once, before batches are read: the ids that are read most often, as many as a
budget of bytes holds. Which these are is estimated from batches that are sampled without attributes
for this purpose, and from degrees where these say nothing. It is kept as arrays of the graph, in
shared memory that all workers of the host map, and never changes: nobody waits for anybody. Whether
a row comes from here or from its owner changes no byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

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


class Degrees(NamedTuple):
    """How often some nodes of a type are neighbours: rising ids, counts, and the number of all."""

    ids: Ids
    counts: npt.NDArray[np.float64]
    num_nodes: int


class Rates(NamedTuple):
    """How often nodes of a type are likely to be read: rising ids, and a number for each.

    All other nodes of the type, so many, are likely to be read at one rate.
    """

    ids: Ids
    rates: npt.NDArray[np.float64]
    others: int = 0
    rate_of_others: float = 0.0


def chosen(rates: Mapping[str, Rates], row_bytes: Mapping[str, int], budget: int) -> dict[str, Ids]:
    """Return the nodes whose rows are worth keeping: most reads for their bytes, within a budget.

    Args:
        rates: How often nodes are read, by node type.
        row_bytes: The bytes of all cached attributes of a node, by node type.
        budget: Bytes for all of them.

    Returns:
        Rising ids by node type; a type of which nothing is kept is left out.
    """
    types = [name for name, size in row_bytes.items() if size and name in rates]
    if not types:
        return {}
    worth = np.concatenate([rates[name].rates / row_bytes[name] for name in types])
    sizes = np.concatenate([np.full(len(rates[name].ids), row_bytes[name]) for name in types])
    firsts = np.cumsum([0, *(len(rates[name].ids) for name in types)])
    order = np.argsort(-worth, kind="stable")
    ends = np.cumsum(sizes[order], dtype=np.int64)
    others = _others(types, rates, row_bytes, worth[order], ends, budget)
    taken = order[ends <= budget]
    taken = np.sort(taken[worth[taken] > 0])
    found = {}
    for number, name in enumerate(types):
        places = taken[(taken >= firsts[number]) & (taken < firsts[number + 1])] - firsts[number]
        ids = np.union1d(rates[name].ids[places], others[name])
        if len(ids):
            found[name] = ids
    return found


def _others(
    types: Sequence[str],
    rates: Mapping[str, Rates],
    row_bytes: Mapping[str, int],
    worth: npt.NDArray[np.float64],
    ends: Ids,
    budget: int,
) -> dict[str, Ids]:
    """Choose among the nodes that no rate is known of, one as good as another of its type.

    Args:
        types: The node types.
        rates: How often nodes are read.
        row_bytes: The bytes of a row.
        worth: What the others are worth, falling.
        ends: The bytes up to each of them; those of the nodes chosen here are added.
        budget: Bytes for all.
    """
    found = dict.fromkeys(types, np.empty(0, np.int64))
    for name in sorted(types, key=lambda name: -rates[name].rate_of_others / row_bytes[name]):
        ids, _, others, rate = rates[name]
        before = int(np.searchsorted(-worth, -rate / row_bytes[name], side="right"))
        used = int(ends[before - 1]) if before else 0
        count = min(others, max(0, budget - used) // row_bytes[name]) if rate > 0 else 0
        if count:
            found[name] = np.setdiff1d(np.arange(count + len(ids)), ids)[:count]
            ends[before:] += count * row_bytes[name]
    return found


def estimated(
    degrees: Mapping[str, Degrees], batches: Iterable[Mapping[str, Ids]]
) -> dict[str, Rates]:
    """Return how often nodes are likely to be read, from a sample of batches and from degrees.

    A node's own reads in the sample say little if they are few; the reads of all nodes of like
    degree say more, where reads follow degrees. How far they do is seen in the sample: the reads of
    a node are taken for draws of a rate that varies among nodes of like degree (Poisson, with a
    gamma distribution of rates), and the expected rate of each node is returned. Where degrees say
    all, it is the mean of its likes; where they say nothing, it is the node's own. Nodes that were
    neither read nor have a degree are alike.

    Args:
        degrees: How often nodes are neighbours, by node type.
        batches: The distinct nodes of sampled batches, by node type.
    """
    read: dict[str, list[Ids]] = {name: [] for name in degrees}
    for nodes in batches:
        for name, ids in nodes.items():
            if name in read:
                read[name].append(ids)
    return {name: _rates_of(degrees[name], read[name]) for name in degrees}


def _rates_of(degrees: Degrees, read: Sequence[Ids]) -> Rates:
    all_reads = np.concatenate([np.empty(0, np.int64), *read])
    ids = np.union1d(all_reads, degrees.ids).astype(np.int64)
    reads = np.bincount(np.searchsorted(ids, all_reads), minlength=len(ids)).astype(np.float64)
    counts = np.zeros(len(ids))
    counts[np.searchsorted(ids, degrees.ids)] = degrees.counts
    others = degrees.num_nodes - len(ids)
    # One of the others stands for all.
    rates = _rates(np.append(reads, 0.0), np.append(counts, 0.0), others - 1)
    return Rates(ids, rates[:-1], others, float(rates[-1]) if others else 0.0)


def _rates(
    reads: npt.NDArray[np.float64], degrees: npt.NDArray[np.float64], others: int
) -> npt.NDArray[np.float64]:
    """Return the rates of nodes; there are so many others, without reads and degrees."""
    # Eight classes for each doubling of the degree.
    classes = np.floor(8 * np.log2(degrees + 1.0)).astype(np.int64)
    count = np.bincount(classes, minlength=1)
    count[0] += max(others, 0)
    count = np.maximum(count, 1)
    mean = np.bincount(classes, reads, len(count)) / count
    variance = np.bincount(classes, reads * reads, len(count)) / count - mean * mean
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.where(variance > mean, mean * mean / (variance - mean), _ALIKE)
        shape = np.clip(shape, 0.0, _ALIKE)
        own = 1.0 / (1.0 + np.where(mean > 0, shape / mean, 0.0))
    rates = own[classes] * (reads + shape[classes])
    # Degrees tell nodes apart that are alike otherwise, and those that no batch has read.
    hardly = degrees * (_HARDLY / (1.0 + float(degrees.max(initial=0.0))))
    return np.asarray(rates + hardly, np.float64)
