"""States of all nodes: `.npy` files that are written in pieces and read by mapping.

Processes write rows of one file at the same time, each its own rows. The first rows tell how wide a
row is; the header follows from that, so all processes write the same one.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class States:
    """The states of `num_nodes` nodes in a file."""

    def __init__(self, path: Path, num_nodes: int) -> None:
        self.path = path
        self.num_nodes = num_nodes
        self._file = -1
        self._mapped: Array | None = None

    def write(self, first: int, rows: Array) -> None:
        """Write the rows of nodes from `first` on."""
        header = _header(rows.dtype, (self.num_nodes, *rows.shape[1:]))
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            _write_all(self._file, header, 0)
        row_bytes = rows.dtype.itemsize * int(np.prod(rows.shape[1:]))
        _write_all(
            self._file, np.ascontiguousarray(rows).tobytes(), len(header) + first * row_bytes
        )

    def flush(self) -> None:
        """Bring what was written to disk."""
        if self._file >= 0:
            os.fsync(self._file)

    def rows(self) -> Array:
        """Return all rows, mapped. All of them have been written, by whomever."""
        if self._mapped is None:
            self._mapped = np.load(self.path, mmap_mode="r")
        return self._mapped

    def close(self) -> None:
        """Release the file. Idempotent."""
        self._mapped = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Remove the file, if it is there."""
        self.close()
        self.path.unlink(missing_ok=True)


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    told = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, told)
    return file.getvalue()


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
