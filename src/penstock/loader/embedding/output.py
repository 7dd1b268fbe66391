"""The file that was asked for: `.npy` as it is, or Parquet with the users' ids.

A file is written under another name and then renamed: whoever opens the name finds the file that
was there before, or all of the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.graph.view import GraphView

_SUFFIXES: Final = (".npy", ".parquet")
_ROWS: Final = 1 << 16  # of a row group


def check_out(out: Any) -> Path:
    """Return where to write; `ValueError` if that cannot be."""
    if not isinstance(out, str | os.PathLike):
        raise ValueError(f"out is {out!r}; expected the name of a file, .parquet or .npy")
    path = Path(out)
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"out is {str(path)!r}; expected a name that ends with .parquet or .npy")
    if not path.parent.is_dir():
        raise ValueError(f"out is {str(path)!r}, and there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise ValueError(f"out is {str(path)!r}, which is a folder")
    if path.suffix == ".parquet":
        _pyarrow()
    return path


def write_out(out: Path, made: Path, graph: GraphView, node_type: str | None) -> None:
    """Write the file.

    Args:
        out: Its name.
        made: The embeddings, as an `.npy` file, which stays: who is killed before it is noted that
            the output is there writes it again.
        graph: The graph, which may have the users' ids.
        node_type: The type of the nodes; None if the graph has no types.
    """
    if out.suffix == ".parquet":
        draft = made.with_suffix(".parquet")
        _write_parquet(draft, np.load(made, mmap_mode="r"), _ids_of(graph, node_type))
    else:
        draft = _linked(made)
    os.replace(draft, out)
    folder = os.open(out.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _linked(made: Path) -> Path:
    """Return another name of a file, or a copy of it where files have but one name."""
    name = made.with_suffix(".out")
    name.unlink(missing_ok=True)
    try:
        os.link(made, name)
    except OSError:
        shutil.copyfile(made, name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
    return name


def _ids_of(graph: GraphView, node_type: str | None) -> Callable[[int, int], Any]:
    """Return what gives the ids of nodes from one number to another: the users', or the numbers."""
    if graph.id_kind(node_type) is None:
        return np.arange
    return lambda first, last: graph.ids(node_type, np.arange(first, last))


def _write_parquet(path: Path, rows: Any, ids: Callable[[int, int], Any]) -> None:
    """Write `id` and `embedding`, a list of as many numbers as there are dimensions."""
    pa, pq = _pyarrow()
    writer = None
    with open(path, "wb") as file:
        for first in range(0, len(rows), _ROWS):
            there = np.ascontiguousarray(rows[first : first + _ROWS])
            numbers = pa.array(there.reshape(-1))
            columns = {
                "id": pa.array(ids(first, first + len(there))),
                "embedding": pa.FixedSizeListArray.from_arrays(numbers, rows.shape[1]),
            }
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema, use_dictionary=False)
            writer.write_table(table)
        if writer is not None:
            writer.close()
        file.flush()
        os.fsync(file.fileno())


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"Parquet needs pyarrow ({error}): pip install 'penstock-gnn[ingest]', or give an out "
            "that ends with .npy"
        ) from None
    return pyarrow, pyarrow.parquet
