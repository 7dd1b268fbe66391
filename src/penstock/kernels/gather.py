"""Gathers rows by id and copies bytes: the interface of the copying kernels."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, raw_bytes

# The buffer by way of which rows are moved.
_MOVED_BYTES: Final = 1 << 18


class Rows:
    """An array whose rows are gathered repeatedly; what is the same each time is computed once."""

    __slots__ = ("_bytes", "_count", "_dtype", "_row_bytes", "_row_shape")

    def __init__(self, rows: Array) -> None:
        self._bytes = raw_bytes(rows, "rows")
        self._count = len(rows)
        self._dtype = rows.dtype
        self._row_shape = rows.shape[1:]
        self._row_bytes = rows.dtype.itemsize * math.prod(self._row_shape)

    def buffer(self, nbytes: int) -> Array:
        """Return new memory for rows, of about `nbytes`: for one row at least."""
        return np.empty((max(1, nbytes // max(1, self._row_bytes)), *self._row_shape), self._dtype)

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return `rows[ids]`, in `out` if given: memory already mapped causes no page faults."""
        ids = as_ids(ids, "ids")
        shape = (len(ids), *self._row_shape)
        if out is None:
            out = np.empty(shape, self._dtype)
        elif out.shape != shape or out.dtype != self._dtype:
            raise ValueError(
                f"out must be {self._dtype} of shape {list(shape)}, "
                f"not {out.dtype} {list(out.shape)}"
            )
        bad = _native.gather_rows(
            self._bytes, self._count, self._row_bytes, ids, raw_bytes(out, "out")
        )
        if bad >= 0:
            raise ValueError(f"ids[{bad}] is {ids[bad]}; expected 0 <= id < {self._count}")
        return out


def gather_rows(rows: Array, ids: Ids, out: Array | None = None) -> Array:
    """Return `rows[ids]`, in `out` if given: memory already mapped causes no page faults."""
    return Rows(rows).gather(ids, out)


def scatter_rows(rows: Array, positions: Ids, out: Array) -> None:
    """Write `rows[i]` to `out[positions[i]]`: the inverse of `gather_rows`.

    Of positions that stand twice, the later row counts.
    """
    checked = as_ids(positions, "positions")
    if rows.shape != (len(checked), *out.shape[1:]) or rows.dtype != out.dtype:
        raise ValueError(
            f"rows must be {out.dtype} of shape {[len(checked), *out.shape[1:]]}, "
            f"not {rows.dtype} {list(rows.shape)}"
        )
    row_bytes = out.dtype.itemsize * math.prod(out.shape[1:])
    bad = _native.scatter_rows(
        raw_bytes(rows, "rows"), row_bytes, checked, len(out), raw_bytes(out, "out")
    )
    if bad >= 0:
        raise ValueError(f"positions[{bad}] is {checked[bad]}; expected 0 <= position < {len(out)}")


def move_rows(rows: Rows, ids: Ids, positions: Ids, out: Array) -> None:
    """Write row `ids[i]` of `rows` to `out[positions[i]]`. `rows` may be those of `out`.

    A few rows at a time are gathered into a buffer that stays in the processor's cache.
    """
    buffer = rows.buffer(_MOVED_BYTES)
    for begin in range(0, len(ids), len(buffer)):
        some = slice(begin, begin + len(buffer))
        taken = rows.gather(ids[some], buffer[: len(ids[some])])
        scatter_rows(taken, positions[some], out)


def copy_bytes(source: Array, out: Array) -> None:
    """Copy bytes to `out`; large copies bypass the caches, so that others' data stays in them."""
    _native.copy_bytes(raw_bytes(source, "source"), raw_bytes(out, "out"))
