"""Computes, once per graph, what weighted and temporal sampling need: the kernels' interface."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, check_output
from penstock.kernels.topology import Adjacency

_REFUSED, _DAMAGED = 1, 2
_DAMAGE: Final = "damaged topology: an offset, neighbour or edge id is out of range"


def weight_sums(
    adjacency: Adjacency, weights: Array, out: Ids | None = None, *, dtype: str | None = None
) -> Ids:
    """Return running sums of integer weights within each row, aligned with the entries.

    Within a row, weights are scaled by a power of two to a total of about 2**60 and rounded down,
    but not to 0; see docs/random.md.

    Args:
        weights: Weights by edge id: integers or floats, not negative or infinite.
        dtype: What 16-bit integers mean: "bfloat16" or "uint16".
    """
    checked = _check_weights(weights, adjacency.num_edges, dtype)
    sums = np.empty(adjacency.num_edges, np.int64) if out is None else check_output(out, "out")
    if len(sums) != adjacency.num_edges:
        raise ValueError(f"out must have {adjacency.num_edges} sums, not {len(sums)}")
    code = _native.weight_sums(adjacency.native, checked, sums)
    if code == _DAMAGED:
        raise GraphFormatError(_DAMAGE)
    if code == _REFUSED:
        edge = _native.first_no_weight(checked)
        raise ValueError(
            f"weights[{edge}], of edge {edge}, is {checked[edge]}; expected a finite number >= 0"
        )
    return sums


def order_by_time(
    adjacency: Adjacency,
    times: Array,
    *,
    of_nodes: bool = False,
    out_entries: Array | None = None,
    out_times: Ids | None = None,
) -> tuple[Array, Ids]:
    """Return the entries, paired, with each row in order of time, and the times in that order.

    `times` are by edge id, or with `of_nodes` by the id of the neighbour. Equal times stay in
    storage order.
    """
    checked = _check_times(times, None if of_nodes else adjacency.num_edges)
    count = adjacency.num_edges
    if out_entries is None:
        out_entries = np.empty((count, 2), _entry_dtype(adjacency))
    if out_times is None:
        out_times = np.empty(count, np.int64)
    if out_entries.shape != (count, 2) or len(check_output(out_times, "out_times")) != count:
        raise ValueError(
            f"out_entries and out_times must have {count} rows, "
            f"not shapes {list(out_entries.shape)} and {list(out_times.shape)}"
        )
    code = _native.order_by_time(adjacency.native, checked, of_nodes, out_entries, out_times)
    if code == _DAMAGED:
        raise GraphFormatError(_DAMAGE)
    if code == _REFUSED:
        raise ValueError(f"out_entries is {out_entries.dtype}, which cannot hold all ids")
    return out_entries, out_times


def _check_weights(weights: Array, count: int, dtype: str | None) -> Array:
    if weights.shape != (count,):
        raise ValueError(
            f"weights must have one number for each of {count} edges, "
            f"not shape {list(weights.shape)}"
        )
    if weights.dtype == np.uint16:
        return _check_short(weights, dtype)
    if weights.dtype == np.float16 or weights.dtype.name == "bfloat16":
        return weights.astype(np.float32)  # float32 holds any of them exactly
    if weights.dtype.kind not in "iuf" or weights.dtype.itemsize > 8:
        raise ValueError(f"weights must be integers or floats, not {weights.dtype}")
    return np.require(weights, weights.dtype.newbyteorder("="), "A")


def _check_short(weights: Array, dtype: str | None) -> Array:
    """Return 16-bit weights by `dtype`: bfloat16 and integers must not be taken for each other."""
    if dtype == "bfloat16":
        widened: Array = (weights.astype(np.uint32) << 16).view(np.float32)
        return widened
    if dtype == "uint16":
        return np.require(weights, np.uint16, "A")
    raise ValueError('weights are 16-bit integers: dtype must say "uint16" or "bfloat16"')


def _check_times(times: Array, count: int | None) -> Array:
    if times.ndim != 1 or (count is not None and len(times) != count):
        expected = "one dimension" if count is None else f"one number for each of {count} edges"
        raise ValueError(f"times must have {expected}, not shape {list(times.shape)}")
    if times.dtype not in (np.int32, np.int64):
        raise ValueError(f"times must be int64 or int32, not {times.dtype}")
    return np.require(times, times.dtype.newbyteorder("="), "A")


def _entry_dtype(adjacency: Adjacency) -> np.dtype[np.signedinteger]:
    """Return a dtype that is wide enough for neighbours and edge ids."""
    narrow = adjacency.entries.dtype == np.int32 and adjacency.num_edges <= 2**31
    return np.dtype(np.int32 if narrow else np.int64)
