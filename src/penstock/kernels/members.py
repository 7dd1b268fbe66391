"""Which ids are here, and in which row each of them lies: a bitmap with ranks.

A part of a graph has the rows of some nodes only, and everybody names nodes by their ids in the
whole graph. The bitmap turns such an id into a row at the cost of one cache line, and takes two
bits for each node of the whole graph.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer

WORD_BITS: Final = 64


class Members:
    """Which of the ids 0 … size-1 are here, and which row each of them has.

    Attributes:
        words: uint64 [ceil(size / 64), 2]. Bit i of `words[w, 0]` says whether the id 64 * w + i is
            here; `words[w, 1]` says how many ids are here before word w.
        size: How many ids there are in all.
        count: How many of them are here.
    """

    __slots__ = ("count", "size", "words")

    def __init__(self, words: Array, size: int) -> None:
        self.size = check_integer(size, "size", 0, 2**62)
        shape = (-(-self.size // WORD_BITS), 2)
        if words.dtype != np.uint64 or words.shape != shape:
            given = f"{words.dtype} {list(words.shape)}"
            raise ValueError(f"words must be uint64 of shape {list(shape)}, not {given}")
        if not (words.flags.c_contiguous and words.flags.aligned):
            raise ValueError("words must be contiguous and aligned")
        self.words = words
        self.count = int(words[-1, 1]) + int(words[-1, 0]).bit_count() if len(words) else 0
        if self.count > self.size:
            raise GraphFormatError(
                f"damaged members: {self.count} of {self.size} ids are said to be here"
            )

    @classmethod
    def of(cls, ids: Array, size: int) -> Members:
        """Make the members of `ids`, which rise: no id stands twice.

        Raises:
            ValueError: An id is out of range, or not larger than the one before it.
        """
        checked = _in_range(ids, check_integer(size, "size", 0, 2**62))
        falls = np.flatnonzero(checked[1:] <= checked[:-1])
        if len(falls):
            at = int(falls[0]) + 1
            raise ValueError(
                f"ids[{at}] is {checked[at]}, after {checked[at - 1]}; expected ids that rise"
            )
        words = np.zeros((-(-size // WORD_BITS), 2), np.uint64)
        bits = np.left_shift(np.uint64(1), (checked % WORD_BITS).astype(np.uint64))
        np.bitwise_or.at(words[:, 0], checked // WORD_BITS, bits)
        starts = np.arange(len(words), dtype=np.int64) * WORD_BITS
        words[:, 1] = np.searchsorted(checked, starts).astype(np.uint64)
        return cls(words, size)

    def rows(self, ids: Array) -> Ids:
        """Return the row of each id, -1 where it is not here.

        Raises:
            ValueError: An id is out of 0 <= id < size.
        """
        checked = _in_range(ids, self.size)
        at, bit = checked // WORD_BITS, (checked % WORD_BITS).astype(np.uint64)
        bits, ranks = self.words[at, 0], self.words[at, 1]
        below = bits & (np.left_shift(np.uint64(1), bit) - np.uint64(1))
        is_here = (bits >> bit) & np.uint64(1) != 0
        return np.where(is_here, ranks.astype(np.int64) + _set_bits(below), -1)

    def ids(self) -> Ids:
        """Return the ids that are here; they rise."""
        bits = np.unpackbits(
            np.ascontiguousarray(self.words[:, 0]).astype("<u8").view(np.uint8), bitorder="little"
        )
        return np.flatnonzero(bits[: self.size]).astype(np.int64, copy=False)

    def check(self) -> None:
        """Raise an error if a rank is not what the bits say, or a bit lies beyond the last id."""
        each = _set_bits(self.words[:, 0])
        before = np.cumsum(each) - each
        beyond = self.size % WORD_BITS and int(self.words[-1, 0]) >> (self.size % WORD_BITS)
        if beyond or not np.array_equal(before.astype(np.uint64), self.words[:, 1]):
            raise GraphFormatError("damaged members: their ranks are not those of their bits")


def _in_range(ids: Array, size: int) -> Ids:
    checked = as_ids(ids, "ids")
    bad = _native.first_outside(checked, size)
    if bad >= 0:
        raise ValueError(f"ids[{bad}] is {checked[bad]}; expected 0 <= id < {size}")
    return checked


def _set_bits(words: Array) -> Ids:
    """Count the set bits of each word, by sums of halves; `bitwise_count` came with NumPy 2."""
    one, two, four = (np.uint64(2**64 // (2**n + 1)) for n in (1, 2, 4))
    sums = words - ((words >> np.uint64(1)) & one)
    sums = (sums & two) + ((sums >> np.uint64(2)) & two)
    sums = (sums + (sums >> np.uint64(4))) & four
    counts: Ids = ((sums * np.uint64(2**64 // 255)) >> np.uint64(56)).astype(np.int64)
    return counts
