"""Checks of a channel's inputs and of what comes with them, shared by kinds.

They look at names, types and forms, when a channel is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.errors import suggestion
from penstock.kernels.arrays import Array
from penstock.sampling.spec import Feed


def check_names(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise `ValueError` for a name that a spec does not read."""
    for name in given:
        if name not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise ValueError(
                f"{what} has {name!r}, which nobody reads; this spec reads: {there}"
                f"{suggestion(name, known)}"
            )


def check_time_form(columns: Mapping[str, Array]) -> None:
    """Raise `ValueError` unless the times, if there are any, are integers."""
    column = columns.get("time")
    if column is not None and (column.ndim != 1 or column.dtype.kind != "i"):
        raise ValueError(f"columns['time'] is {form(column)}; expected integers, one for each")


def check_begins(feed: Feed, node_type: str, what: str) -> None:
    """Raise `ValueError` unless the inputs have the type that the spec starts from."""
    if (feed.node_type or "") != node_type:
        raise ValueError(f"node_type is {feed.node_type!r}; the {what} {node_type!r}")


def form(array: Array) -> str:
    """Return dtype and shape of an array, as error messages show them."""
    return f"{array.dtype}{list(array.shape)}"
