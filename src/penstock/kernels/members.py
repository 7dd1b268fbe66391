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
from penstock.kernels.arrays import Array, Ids, as_ids, as_numbers, check_integer

WORD_BITS: Final = 64
_DAMAGE: Final = "damaged members: their ranks are not those of their bits"


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
        checked, size = as_ids(ids, "ids"), check_integer(size, "size", 0, 2**62)
        words = np.zeros((-(-size // WORD_BITS), 2), np.uint64)
        bad = _native.fill_members(checked, size, words)
        if bad >= 0 and not 0 <= checked[bad] < size:
            raise ValueError(f"ids[{bad}] is {checked[bad]}; expected 0 <= id < {size}")
        if bad >= 0:
            raise ValueError(
                f"ids[{bad}] is {checked[bad]}, after {checked[bad - 1]}; expected ids that rise"
            )
        return cls(words, size)

    def rows(self, ids: Array) -> Ids:
        """Return the row of each id, -1 where it is not here.

        Raises:
            ValueError: An id is out of 0 <= id < size.
        """
        checked = as_numbers(ids, "ids")
        rows = np.empty(len(checked), np.int64)
        bad = _native.member_rows(self.words, self.size, checked, rows)
        if bad >= 0:
            raise ValueError(f"ids[{bad}] is {checked[bad]}; expected 0 <= id < {self.size}")
        return rows

    def ids(self) -> Ids:
        """Return the ids that are here; they rise."""
        ids = np.empty(self.count, np.int64)
        if not _native.member_ids(self.words, ids):
            raise GraphFormatError(_DAMAGE)
        return ids

    def check(self) -> None:
        """Raise an error if a rank is not what the bits say, or a bit lies beyond the last id."""
        if not _native.members_are_sound(self.words, self.size):
            raise GraphFormatError(_DAMAGE)
