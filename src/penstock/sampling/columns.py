"""What the inputs of a channel are, and what comes with them: checks that kinds share.

They look at names, types and forms, when a channel is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.kernels.arrays import Array
from penstock.sampling.spec import Feed


def check_names(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """ValueError for a name that a spec does not read."""
    for name in given:
        if name not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise ValueError(f"{what} has {name!r}, which nobody reads; this spec reads: {there}")


def check_time_form(columns: Mapping[str, Array]) -> None:
    """ValueError unless the times, if there are any, are integers."""
    column = columns.get("time")
    if column is not None and (column.ndim != 1 or column.dtype.kind != "i"):
        raise ValueError(f"columns['time'] is {form(column)}; expected integers, one for each")


def check_begins(feed: Feed, node_type: str, what: str) -> None:
    """ValueError unless the inputs are of the type at which something begins."""
    if (feed.node_type or "") != node_type:
        raise ValueError(f"node_type is {feed.node_type!r}; the {what} {node_type!r}")


def form(array: Array) -> str:
    """Dtype and shape of an array, as errors say them."""
    return f"{array.dtype}{list(array.shape)}"
