"""Tables in memory, written to several files: as tasks on other hosts read them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def sharded(folder: Path, files: int, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Write the tables of a description, each to so many Parquet files."""
    found: dict[str, Any] = {}
    for what, given in tables.items():
        if not given:
            continue
        by_type = {"": given} if "data" in given else given
        written = {
            name: _written(folder / f"{what}-{number}", files, table)
            for number, (name, table) in enumerate(by_type.items())
        }
        found[what] = written[""] if "data" in given else written
    return found


def _written(folder: Path, files: int, said: Mapping[str, Any]) -> dict[str, Any]:
    folder.mkdir(parents=True)
    whole = pa.table({name: _column(values) for name, values in said["data"].items()})
    bounds = [whole.num_rows * number // files for number in range(files + 1)]
    for number, (begin, end) in enumerate(pairwise(bounds)):
        pq.write_table(whole.slice(begin, end - begin), folder / f"{number:03d}.parquet")
    words = {word: value for word, value in said.items() if word != "data"}
    return {**words, "files": str(folder / "*.parquet")}


def _column(values: Any) -> pa.Array:
    array = np.asarray(values)
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
