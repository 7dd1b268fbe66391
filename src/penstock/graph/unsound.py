"""Errors about an array of a graph, which name its file, its key and the position."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.handles import FileHandle
from penstock.graph.inventory import key_text
from penstock.graph.schema import ArrayKey
from penstock.graph.shared import SharedArray


def unsound(key: ArrayKey, array: SharedArray, what: str) -> GraphFormatError:
    """Return an error about an array; `what` follows its name."""
    handle = array.segment.handle
    where = f"{handle.path}: " if isinstance(handle, FileHandle) else ""
    return GraphFormatError(f"{where}{key_text(key)}{what}")


def check_ids(
    key: ArrayKey, array: SharedArray, ids: npt.NDArray[Any], bound: int, column: str
) -> None:
    """Raise for the first of `ids`, a `column` of the array, that is not in [0, bound)."""
    at = kernels.first_outside(ids, bound)
    if at >= 0:
        raise unsound(key, array, f"{column}[{at}] is {ids[at]}; expected 0 <= id < {bound}")
