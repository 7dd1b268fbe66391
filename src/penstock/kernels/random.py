"""Keys and permutations: the interface of the random numbers that docs/random.md specifies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.kernels import _native
from penstock.kernels.arrays import Ids, check_integer, check_word

_NAME_DOMAIN = 0x6E616D6500000001
_GROUPS_DOMAIN = 0x67726F7570730001


def name_hash(parts: Sequence[str]) -> int:
    """Return the word that represents a name (an edge type's three parts) in a key.

    Keys use names, not numbers, so that adding a type to a graph does not change others' draws.
    """
    data = "\0".join(parts).encode()
    word = _native.fold(_NAME_DOMAIN, len(data))
    for start in range(0, len(data), 8):
        word = _native.fold(word, int.from_bytes(data[start : start + 8], "little"))
    return word


def batch_key(seed: int, epoch: int, index: int) -> int:
    """Return the key of batch `index` of an epoch; every draw of the batch derives from it."""
    return _native.batch_key(
        check_word(seed, "seed"), check_word(epoch, "epoch"), check_word(index, "index")
    )


def hop_key(batch_key: int, hop: int, edge_type_hash: int) -> int:
    """Return the key that all nodes expanded by one hop along one edge type share."""
    return _native.hop_key(
        check_word(batch_key, "batch_key"),
        check_word(hop, "hop"),
        check_word(edge_type_hash, "edge_type_hash"),
    )


def permutation(seed: int, epoch: int, size: int, start: int = 0, stop: int | None = None) -> Ids:
    """Return places `start` to `stop` of a permutation of `range(size)`.

    (seed, epoch, size) determine the permutation.
    """
    size = check_integer(size, "size", 0, 2**63 + 1)
    stop = check_integer(size if stop is None else stop, "stop", 0, size + 1)
    start = check_integer(start, "start", 0, stop + 1)
    out = np.empty(stop - start, np.int64)
    _native.permute(check_word(seed, "seed"), check_word(epoch, "epoch"), size, start, out)
    return out


def grouped_seed(seed: int, group: int | None = None) -> int:
    """Return the seed that shuffles the batches of an epoch whose inputs are in groups.

    With `group`, the seed that shuffles the inputs of that group.
    """
    word = _native.fold(_GROUPS_DOMAIN, check_word(seed, "seed"))
    return word if group is None else _native.fold(word, group)
