"""What comes with the inputs of a channel: which columns and tables a spec reads, and their form.

Looked at when a channel is opened, so that none of them fails batch after batch in a worker. What
stands in them is looked at where it is read. Knows nothing of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.graph import EdgeType, Graph
from penstock.kernels.arrays import Array
from penstock.sampling.spec import ABLPSpec, LinkSpec, NeighborSpec, Spec

_WEIGHTS: Final = {"src_weight": 0, "dst_weight": 2}  # and which end of an edge type has them


def check_form(spec: Spec, columns: Mapping[str, Array], tables: Mapping[str, Array]) -> None:
    """ValueError unless a spec reads all of these. A user's sampler is given its seeds alone."""
    _check_names("columns", columns, _columns_of(spec))
    # What labels are shifted by is nothing that users know of.
    shifts = isinstance(spec, LinkSpec)
    _check_names("tables", tables.keys() - {"label_shift"} if shifts else tables, _tables_of(spec))
    for name, column in columns.items():
        if name == "time" and (column.ndim != 1 or column.dtype.kind != "i"):
            raise ValueError(f"columns['time'] is {_form(column)}; expected integers, one for each")
        if isinstance(spec, ABLPSpec) and (column.ndim != 2 or column.dtype.kind != "i"):
            raise ValueError(
                f"columns[{name!r}] is {_form(column)}; expected integers, a row of labels for "
                "each anchor, padded with -1"
            )
    shift = tables.get("label_shift")
    if shift is not None and (shift.shape != (1,) or shift.dtype.kind != "i"):
        raise ValueError(f"tables['label_shift'] is {_form(shift)}; expected one integer")


def check_weights(tables: Mapping[str, Array], kind: EdgeType, graph: Graph) -> None:
    """ValueError unless there is a running sum for each node that an end of these edges may be."""
    for name, end in _WEIGHTS.items():
        sums = tables.get(name)
        if sums is None:
            continue
        if sums.shape != (graph.num_nodes(kind[end]),):
            raise ValueError(
                f"tables[{name!r}] has shape {list(sums.shape)}; expected a weight for each of "
                f"{graph.num_nodes(kind[end])} nodes"
            )
        if sums.dtype != "int64":  # not from a user: these are what is made of the weights
            raise ValueError(f"tables[{name!r}] is {_form(sums)}; expected running sums, int64")


def check_times(
    spec: NeighborSpec, columns: Mapping[str, Array], node_type: str | None, graph: Graph
) -> None:
    """ValueError unless seeds of this type have times where time counts, and only there."""
    if spec.time_attr is None:
        if "time" in columns:
            raise ValueError(
                "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set "
                "while 'time_attr' is not set. ('input_time' is columns['time'] here.)"
            )
        return
    if "time" not in columns and spec.time_attr not in graph.node_attributes(node_type):
        of = f" of {node_type!r}" if node_type else ""
        raise ValueError(
            f"Seed time needs to be specified: nodes{of} have no {spec.time_attr!r} themselves, "
            "and there is no columns['time']"
        )


def _columns_of(spec: Spec) -> tuple[str, ...]:
    match spec:
        case NeighborSpec():
            return ("time",)
        case LinkSpec():
            return "time", "label"
        case ABLPSpec():
            numbers = range(len(spec.supervision))
            return tuple(f"{sign}/{n}" for n in numbers for sign in ("positive", "negative"))
        case _:
            return ()


def _tables_of(spec: Spec) -> tuple[str, ...]:
    """Only what negatives are drawn by; of triplets, the sources are those of the edges."""
    if not isinstance(spec, LinkSpec) or spec.negatives == "none":
        return ()
    return tuple(_WEIGHTS) if spec.negatives == "binary" else ("dst_weight",)


def _check_names(what: str, given: Iterable[str], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise ValueError(f"{what} has {name!r}, which nobody reads; this spec reads: {there}")


def _form(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"
