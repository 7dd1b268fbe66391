"""Small tables in every format, and graphs built of them, shared by the tests of builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq

from penstock.graph import Graph

FORMATS = ("parquet", "csv", "feather", "arrows", "npz")


def write(path: Path, table: pa.Table) -> Path:
    """Write a table in the format that the path's name says."""
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".csv":
            pa_csv.write_csv(table, path)
        case ".feather":
            feather.write_feather(table, path)
        case ".arrows":
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
        case ".npz":
            np.savez(path, **{name: table[name].to_numpy() for name in table.column_names})
    return path


def spread(folder: Path, table: pa.Table, cuts: Sequence[int], form: str, name: str) -> str:
    """Write a table into several files, and return their pattern."""
    bounds = [0, *sorted(cuts), table.num_rows]
    for number, (begin, end) in enumerate(pairwise(bounds)):
        write(folder / f"{name}-{number:03d}.{form}", table.slice(begin, end - begin))
    return str(folder / f"{name}-*.{form}")


def same_graph(built: Graph, expected: Graph) -> None:
    """Compare two graphs: types, sizes, and the bytes of all arrays that both may have."""
    assert built.node_types == expected.node_types
    assert built.edge_types == expected.edge_types
    assert {name: built.num_nodes(name) for name in built.node_types} == {
        name: expected.num_nodes(name) for name in expected.node_types
    }
    assert plain_arrays(built) == plain_arrays(expected)


def plain_arrays(graph: Graph) -> dict[Any, tuple[str, tuple[int, ...], bytes]]:
    """All arrays of a graph, as they can be compared."""
    return {
        key: (array.dtype, array.shape, np.ascontiguousarray(array.array).tobytes())
        for key, array in graph.arrays.items()
    }


def table_of(columns: Mapping[str, Any]) -> pa.Table:
    """A table of lists and arrays."""
    return pa.table(dict(columns))
