"""Partition books: which part of a graph holds a node or an edge, and its row there.

    book = RangeBook((0, 500, 1000))            # part 0 has ids 0 to 499, part 1 the others
    book = HashBook(1000, 2)                    # a hash of the id decides
    book = ArrayBook(parts, 2)                  # parts[id] is the part of an id

Rows count from 0 within a part, in the order of ids. Ids are those of the whole graph; an id out of
range is an error, and never taken for that of another part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.kernels.reference import mix

Ids: TypeAlias = npt.NDArray[np.int64]

# So many parts can be numbered in one byte, or in two; elements of two bytes have a sign on disk.
_FEW: Final = 1 << 8
_MANY: Final = 1 << 15
# So many bounds are compared one by one faster than searched.
_COMPARED: Final = 16
# Ids whose parts are computed at a time.
_PIECE: Final = 1 << 20


class PartitionBook(Protocol):
    """Says which part holds an id."""

    @property
    def num_partitions(self) -> int:
        """The number of parts."""

    @property
    def size(self) -> int:
        """The number of ids."""

    def partition_of(self, ids: Any) -> npt.NDArray[np.int32]:
        """Return the part of each id."""

    def ids_of(self, part: int) -> Ids:
        """Return the ids of a part, in rising order."""

    def count(self, part: int) -> int:
        """Return the number of ids of a part."""

    def local(self, ids: Any, part: int) -> Ids:
        """Return the rows of ids within a part; `ValueError` for an id of another part."""


class RangeBook:
    """A book by ranges: part p has the ids from `bounds[p]` to `bounds[p + 1]`."""

    def __init__(self, bounds: Sequence[int]) -> None:
        values = [int(bound) for bound in bounds]
        if len(values) < 2 or values[0] != 0 or sorted(values) != values:
            raise ValueError(f"bounds are {list(bounds)}; expected rising numbers, the first 0")
        self.bounds = tuple(values)

    @classmethod
    def even(cls, size: int, parts: int) -> RangeBook:
        """Return a book whose parts differ in size by at most one; the first parts are larger."""
        share, odd = divmod(size, parts)
        return cls([share * part + min(part, odd) for part in range(parts + 1)])

    @property
    def num_partitions(self) -> int:
        return len(self.bounds) - 1

    @property
    def size(self) -> int:
        return self.bounds[-1]

    def partition_of(self, ids: Any) -> npt.NDArray[np.int32]:
        places, inner = _checked(ids, self.size), self.bounds[1:-1]
        if len(inner) > _COMPARED:
            return np.searchsorted(self.bounds[1:], places, side="right").astype(np.int32)
        parts = np.zeros(places.shape, np.int32)
        for bound in inner:
            parts += places >= bound
        return parts

    def ids_of(self, part: int) -> Ids:
        _check_part(part, self)
        return np.arange(self.bounds[part], self.bounds[part + 1], dtype=np.int64)

    def count(self, part: int) -> int:
        _check_part(part, self)
        return self.bounds[part + 1] - self.bounds[part]

    def local(self, ids: Any, part: int) -> Ids:
        places = _checked(ids, self.size)
        _check_all_here(places, self.partition_of(places), part)
        return places - self.bounds[part]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeBook) and self.bounds == other.bounds

    def __hash__(self) -> int:
        return hash(self.bounds)

    def __repr__(self) -> str:
        return f"RangeBook({self.bounds!r})"


class HashBook:
    """A book by hashes: an id is in the part of its hash, modulo the number of parts.

    It needs no memory. `ids_of` and `count` take time for each id of the whole graph.
    """

    def __init__(self, size: int, num_partitions: int) -> None:
        if size < 0 or num_partitions < 1:
            raise ValueError(
                f"size is {size} and num_partitions {num_partitions}; expected at least 0 and 1"
            )
        self._size = int(size)
        self._num_partitions = int(num_partitions)

    @property
    def num_partitions(self) -> int:
        return self._num_partitions

    @property
    def size(self) -> int:
        return self._size

    def partition_of(self, ids: Any) -> npt.NDArray[np.int32]:
        return _hashed(_checked(ids, self._size), self._num_partitions).astype(np.int32)

    def ids_of(self, part: int) -> Ids:
        _check_part(part, self)
        found = [np.zeros(0, np.int64)]
        for first in range(0, self._size, _PIECE):
            ids = np.arange(first, min(first + _PIECE, self._size), dtype=np.int64)
            found.append(ids[_hashed(ids, self._num_partitions) == part])
        return np.concatenate(found)

    def count(self, part: int) -> int:
        _check_part(part, self)
        return _hash_counts(self._size, self._num_partitions)[part]

    def local(self, ids: Any, part: int) -> Ids:
        places = _checked(ids, self._size)
        _check_all_here(places, self.partition_of(places), part)
        return np.searchsorted(self.ids_of(part), places).astype(np.int64)

    def parts(self) -> npt.NDArray[Any]:
        """Return the part of every id, as an `ArrayBook` has them."""
        found = np.empty(self._size, part_dtype(self._num_partitions))
        for first in range(0, self._size, _PIECE):
            ids = np.arange(first, min(first + _PIECE, self._size), dtype=np.int64)
            found[first : first + _PIECE] = _hashed(ids, self._num_partitions)
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashBook):
            return False
        return (self.size, self.num_partitions) == (other.size, other.num_partitions)

    def __hash__(self) -> int:
        return hash((self._size, self._num_partitions))

    def __repr__(self) -> str:
        return f"HashBook({self._size}, {self._num_partitions})"


class ArrayBook:
    """A book by an array: `parts[id]` is the part of an id."""

    def __init__(self, parts: Any, num_partitions: int) -> None:
        found = np.asarray(parts)
        if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
            raise ValueError(
                f"parts has dtype {found.dtype} and shape {found.shape}; expected a list of numbers"
            )
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < num_partitions:
            raise ValueError(f"parts has numbers that are not 0 <= part < {num_partitions}")
        self.parts = found.astype(part_dtype(num_partitions), copy=False)
        self._num_partitions = num_partitions

    @property
    def num_partitions(self) -> int:
        return self._num_partitions

    @property
    def size(self) -> int:
        return len(self.parts)

    def partition_of(self, ids: Any) -> npt.NDArray[np.int32]:
        return self.parts[_checked(ids, self.size)].astype(np.int32)

    def ids_of(self, part: int) -> Ids:
        _check_part(part, self)
        return np.flatnonzero(self.parts == part)

    def count(self, part: int) -> int:
        _check_part(part, self)
        return int(np.count_nonzero(self.parts == part))

    def local(self, ids: Any, part: int) -> Ids:
        places = _checked(ids, self.size)
        _check_all_here(places, self.parts[places], part)
        return np.searchsorted(self.ids_of(part), places).astype(np.int64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayBook) or self.num_partitions != other.num_partitions:
            return False
        return np.array_equal(self.parts, other.parts)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<ArrayBook of {self.size} ids in {self.num_partitions} parts>"


def part_dtype(num_partitions: int) -> npt.DTypeLike:
    """Return the dtype that part numbers are stored in."""
    if num_partitions <= _FEW:
        return np.uint8
    return np.int16 if num_partitions <= _MANY else np.int32


def _hashed(ids: Ids, num_partitions: int) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = mix(ids.astype(np.uint64)) % np.uint64(num_partitions)
    return found


@lru_cache(maxsize=64)
def _hash_counts(size: int, num_partitions: int) -> tuple[int, ...]:
    counts = np.zeros(num_partitions, np.int64)
    for first in range(0, size, _PIECE):
        ids = np.arange(first, min(first + _PIECE, size), dtype=np.int64)
        parts = _hashed(ids, num_partitions).astype(np.int64)
        counts += np.bincount(parts, minlength=num_partitions)
    return tuple(counts.tolist())


def list_of_ids(ids: Any) -> Ids:
    """Return ids as they are looked up; `ValueError` for what is no list of integers."""
    places = np.asarray(ids)
    if places.ndim != 1 or (len(places) and not np.issubdtype(places.dtype, np.integer)):
        raise ValueError(
            f"ids have dtype {places.dtype} and shape {list(places.shape)}; expected a list of ids"
        )
    return places.astype(np.int64, copy=False)


def _checked(ids: Any, size: int) -> Ids:
    places = list_of_ids(ids)
    outside = (places < 0) | (places >= size)
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"ids[{at}] is {places[at]}; expected 0 <= id < {size}")
    return places


def _check_all_here(ids: Ids, parts: npt.NDArray[Any], part: int) -> None:
    foreign = parts != part
    if foreign.any():
        at = int(np.argmax(foreign))
        raise ValueError(f"ids[{at}] is {ids[at]}, which is in part {parts[at]}; this is {part}")


def _check_part(part: int, book: PartitionBook) -> None:
    if not 0 <= part < book.num_partitions:
        raise ValueError(f"part is {part}; expected 0 <= part < {book.num_partitions}")
