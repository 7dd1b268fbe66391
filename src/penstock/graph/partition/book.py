"""Partition books: which part of a graph holds a node or an edge, and its local id there.

    book = RangeBook((0, 500, 1000))            # part 0 has ids 0 to 499, part 1 the others
    book = ArrayBook(parts, 2)                  # parts[id] is the part of an id

Local ids count from 0 within a part, in the order of global ids. Ids given to a book are always
global; an id out of range is an error, and never taken for that of another part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.int64]

_FEW: Final = 256  # so many parts can be numbered in a byte


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
        """Return the local ids of ids within a part; `ValueError` for an id of another part."""


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
        places = _checked(ids, self.size)
        return np.searchsorted(self.bounds[1:], places, side="right").astype(np.int32)

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
    return np.uint8 if num_partitions <= _FEW else np.int32


def _checked(ids: Any, size: int) -> Ids:
    places = np.asarray(ids)
    if places.ndim != 1 or (len(places) and not np.issubdtype(places.dtype, np.integer)):
        raise ValueError(
            f"ids have dtype {places.dtype} and shape {list(places.shape)}; expected a list of ids"
        )
    places = places.astype(np.int64, copy=False)
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
