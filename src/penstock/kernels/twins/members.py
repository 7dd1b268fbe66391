"""Members, a bitmap with ranks, in plain NumPy."""

from __future__ import annotations

import numpy as np

from penstock.kernels.arrays import Array, Ids

WORD_BITS = 64


def fill(ids: Array, size: int) -> Array:
    """Return the words of ids that rise."""
    words = np.zeros((-(-size // WORD_BITS), 2), np.uint64)
    for word in range(len(words)):
        here = ids[(ids >= word * WORD_BITS) & (ids < (word + 1) * WORD_BITS)] % WORD_BITS
        words[word, 0] = sum(1 << int(bit) for bit in here)
        words[word, 1] = np.count_nonzero(ids < word * WORD_BITS)
    return words


def rows(words: Array, ids: Array) -> Ids:
    """Return the row of each id, -1 where it is not here."""
    found = []
    for id_ in np.asarray(ids).tolist():
        bits, before = (int(number) for number in words[id_ // WORD_BITS])
        bit = 1 << id_ % WORD_BITS
        found.append(before + (bits & (bit - 1)).bit_count() if bits & bit else -1)
    return np.array(found, np.int64)


def ids(words: Array, size: int) -> Ids:
    """Return the ids that are here; they rise."""
    return np.flatnonzero(rows(words, np.arange(size)) >= 0).astype(np.int64)
