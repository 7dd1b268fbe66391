"""Make batches of a user's sampler as a worker would, and find differences between batches.

Used by the process that checks and by the fresh interpreter that it starts; knows neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.kernels.arrays import Array
from penstock.sampling.custom import Sampler, checked, sampled

Arrays = dict[str, Array]


class Misbehaved(PenstockError):
    """A sampler did something that no sampler may."""


class TravellingArray(msgspec.Struct, frozen=True):
    """An array that can be sent to another process."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: Array) -> TravellingArray:
        return cls(array.dtype.str, array.shape, array.tobytes())

    @property
    def array(self) -> Array:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


class SamplerTask(msgspec.Struct, frozen=True, kw_only=True):
    """One batch to make: its seeds, nodes [n] or links [2, n], and their columns."""

    seeds: TravellingArray
    columns: dict[str, TravellingArray]
    seed: int
    epoch: int
    index: int

    def __str__(self) -> str:
        return f"batch {self.index} of epoch {self.epoch}"


def made(sampler: Sampler, graph: Graph, tasks: Iterable[SamplerTask]) -> dict[int, Arrays]:
    """Return the arrays of each batch, by index. Raises if a batch is invalid."""
    return {task.index: _batch(sampler, graph, task) for task in tasks}


def _batch(sampler: Sampler, graph: Graph, task: SamplerTask) -> Arrays:
    given = task.seeds.array.copy()
    columns = {name: column.array.copy() for name, column in task.columns.items()}
    result = sampled(sampler, given, columns, seed=task.seed, epoch=task.epoch, index=task.index)
    _check_unwritten(task, given, columns)
    # A copy, as a batch's memory holds one: the result may be the sampler's own memory, or the
    # seeds themselves, which the caller overwrites from here on.
    arrays = {name: array.copy() for name, array in checked(result, graph).items()}
    for theirs in (given, *columns.values()):
        theirs.view(np.uint8).fill(0xFF)
    return arrays


def _check_unwritten(task: SamplerTask, seeds: Array, columns: Mapping[str, Array]) -> None:
    if not _same(seeds, task.seeds.array):
        raise Misbehaved(f"sampling {task} wrote to its seeds; they are the caller's")
    for name, column in task.columns.items():
        if not _same(column.array, columns.get(name)):
            raise Misbehaved(f"sampling {task} wrote to its columns[{name!r}], the caller's")


def differing(one: Arrays, other: Arrays) -> Arrays:
    """Return the arrays of `one` that `other` does not have, byte for byte."""
    return {name: array for name, array in one.items() if not _same(array, other.get(name))}


def in_words(one: Mapping[str, Array], other: Mapping[str, Array]) -> str:
    """Return the first difference between two batches, in words; there must be one."""
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            return f"{name!r} is there only the {'first' if name in one else 'second'} time"
        if not _same(one[name], other[name]):
            return _apart(name, one[name], other[name])
    raise AssertionError("they are the same")


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and _form(one) == _form(other) and one.tobytes() == other.tobytes()


def _form(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype.str, array.shape


def _apart(name: str, one: Array, other: Array) -> str:
    if _form(one) != _form(other):
        forms = [f"{array.dtype} {list(array.shape)}" for array in (one, other)]
        return f"{name!r} is {forms[0]}, then {forms[1]}"
    # By bytes, so that a NaN equals itself.
    size = one.dtype.itemsize
    rows = [np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (one, other)]
    first = int(np.flatnonzero((rows[0] != rows[1]).any(axis=1))[0])
    place = [int(axis) for axis in np.unravel_index(first, one.shape)]
    values: list[Any] = [array.reshape(-1)[first] for array in (one, other)]
    return f"{name}{place} is {values[0]}, then {values[1]}"


def first_difference(
    one: Mapping[int, Arrays], other: Mapping[int, Arrays]
) -> tuple[int, Arrays, Arrays] | None:
    """Return the first batch that is not the same in both, and its arrays that differ."""
    for index in sorted(one):
        apart = differing(one[index], other[index]), differing(other[index], one[index])
        if any(apart):
            return index, *apart
    return None
