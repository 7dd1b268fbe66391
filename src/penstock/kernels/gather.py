"""Rows by id, and bytes as they are: the face of the kernels that copy."""

from __future__ import annotations

import numpy as np

from penstock.kernels import _native
from penstock.kernels.arrays import Array, Ids, as_ids, raw_bytes


def gather_rows(rows: Array, ids: Ids, out: Array | None = None) -> Array:
    """`rows[ids]`, written into `out` where given: memory already mapped costs no page faults."""
    ids = as_ids(ids, "ids")
    shape = (len(ids), *rows.shape[1:])
    if out is None:
        out = np.empty(shape, rows.dtype)
    elif out.shape != shape or out.dtype != rows.dtype:
        raise ValueError(
            f"out must be {rows.dtype} of shape {list(shape)}, not {out.dtype} {list(out.shape)}"
        )
    row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
    bad = _native.gather_rows(
        raw_bytes(rows, "rows"), len(rows), row_bytes, ids, raw_bytes(out, "out")
    )
    if bad >= 0:
        raise ValueError(f"ids[{bad}] is {ids[bad]}; expected 0 <= id < {len(rows)}")
    return out


def copy_bytes(source: Array, out: Array) -> None:
    """`out[:] = source`, for bytes; many of them go past the caches, which others need."""
    _native.copy_bytes(raw_bytes(source, "source"), raw_bytes(out, "out"))
