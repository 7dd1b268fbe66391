"""Which part gets each node: by ranges of ids, by hashes, by its neighbours, or as the user says.

An `Assignment` has all that a cutter asks for: the part of a node, and the nodes of a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.errors import suggestion
from penstock.graph.lookup import known
from penstock.graph.partition.book import (
    ArrayBook,
    HashBook,
    Ids,
    PartitionBook,
    RangeBook,
    part_dtype,
)
from penstock.graph.partition.index_space import IndexSpace
from penstock.graph.partition.kaminpar import by_locality
from penstock.graph.partition.streaming import PASSES, Zeros, stream
from penstock.graph.progress import Report
from penstock.graph.schema import EdgeType
from penstock.graph.tensors import plain
from penstock.graph.topology import Topology

Method: TypeAlias = (
    Literal["range", "hash", "locality", "streaming"] | npt.ArrayLike | Mapping[str, npt.ArrayLike]
)

METHODS: Final = ("range", "hash", "locality", "streaming")


class Nodes(Protocol):
    """The nodes that are assigned: a whole graph, or what is known of one before there are parts.

    `csc` is asked for by methods that go by neighbours.
    """

    @property
    def is_hetero(self) -> bool: ...
    @property
    def node_types(self) -> tuple[str, ...]: ...
    @property
    def edge_types(self) -> tuple[EdgeType, ...]: ...
    def num_nodes(self, node_type: str, /) -> int: ...
    def csc(self, edge_type: EdgeType, /) -> Topology: ...


class Assignment:
    """The part of each node of one type."""

    def __init__(self, book: PartitionBook) -> None:
        self.book = book

    @property
    def bounds(self) -> tuple[int, ...] | None:
        """The bounds of the parts, if they are ranges of ids."""
        return self.book.bounds if isinstance(self.book, RangeBook) else None

    @cached_property
    def parts(self) -> npt.NDArray[Any]:
        """The part of each node, in as few bytes as possible."""
        if isinstance(self.book, ArrayBook):
            return self.book.parts
        if isinstance(self.book, HashBook):
            return self.book.parts()
        assert isinstance(self.book, RangeBook)
        counts = np.diff(self.book.bounds)
        return np.repeat(np.arange(len(counts), dtype=part_dtype(len(counts))), counts)

    def nodes(self, part: int) -> Ids:
        """Return the nodes of a part, rising."""
        if self.bounds is not None:
            return self.book.ids_of(part)
        first, end = self._starts[part : part + 2]
        return np.asarray(self._order[first:end], np.int64)

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.parts, kind="stable")

    @cached_property
    def counts(self) -> list[int]:
        """How many nodes each part has."""
        if self.bounds is not None:
            return [int(count) for count in np.diff(self.bounds)]
        counts = np.bincount(self.parts, minlength=self.book.num_partitions)
        return [int(count) for count in counts]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]


def assignments(
    graph: Nodes,
    parts: int,
    method: Method,
    passes: int | None = None,
    report: Report | None = None,
    beside: Path | None = None,
    zeros: Zeros = np.zeros,
) -> dict[str, Assignment]:
    """Return the assignment of each node type.

    Args:
        graph: The whole graph.
        parts: How many parts there are.
        method: As for `Graph.partition`.
        passes: The most passes of "streaming"; None for the default.
        report: Called with bytes of edges that "streaming" has read, and will read at most.
        beside: The folder for temporary files of "locality"; None for the system's.
        zeros: Makes the table of votes of "streaming".

    Raises:
        ValueError: The method is not known, or does not have a part for each node.
        PenstockError: The package that "locality" needs is not installed, or failed.
    """
    check_passes(passes, method)
    if not isinstance(method, str):
        return {
            name: Assignment(_given(label, numbers, graph.num_nodes(name), parts))
            for name, (label, numbers) in _by_type(graph, method).items()
        }
    if method in ("range", "hash"):
        book = RangeBook.even if method == "range" else HashBook
        return {name: Assignment(book(graph.num_nodes(name), parts)) for name in graph.node_types}
    if method == "locality":
        found = by_locality(IndexSpace.of(graph), parts, beside)
    elif method == "streaming":
        found = stream(IndexSpace.of(graph), parts, passes or PASSES, report, zeros=zeros)
    else:
        raise ValueError(
            f"method is {method!r}; expected one of {', '.join(METHODS)}, or the part of each "
            f"node as an array{suggestion(method, METHODS)}"
        )
    return {name: Assignment(ArrayBook(numbers, parts)) for name, numbers in found.items()}


def check_passes(passes: Any, method: Any) -> None:
    """Raise an error for a number of passes that makes no sense with a method."""
    if passes is None:
        return
    if not isinstance(method, str) or method != "streaming":
        raise ValueError(f"passes is {passes!r}; only method='streaming' makes passes")
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise ValueError(f"passes is {passes!r}; expected at least 1")


def _by_type(graph: Nodes, method: Any) -> dict[str, tuple[str, Any]]:
    """Return what was given for each node type, and how it is called in errors."""
    if not isinstance(method, Mapping):
        if graph.is_hetero:
            raise ValueError(
                "method is an array, and the graph has node types: give the parts of each type, "
                f"{{{', '.join(f'{name!r}: …' for name in graph.node_types)}}}"
            )
        return {graph.node_types[0]: ("method", method)}
    if not graph.is_hetero:
        raise ValueError("method is a mapping, and the graph has no types: give one array")
    for name in method:
        known("a type of method", name, dict.fromkeys(graph.node_types, 0))
    for name in graph.node_types:
        if name not in method:
            raise ValueError(f"method has no parts of the nodes of {name!r}")
    return {name: (f"method[{name!r}]", method[name]) for name in graph.node_types}


def _given(label: str, numbers: Any, size: int, parts: int) -> ArrayBook:
    found = plain(label, numbers).array
    if found.ndim != 1 or len(found) != size:
        raise ValueError(
            f"{label} has shape {list(found.shape)}; expected [{size}], the part of each node"
        )
    if found.dtype.kind not in "iu":
        raise ValueError(f"{label} has dtype {found.dtype}; expected the numbers of parts")
    bad = (found < 0) | (found >= parts)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"{label}[{at}] is {found[at]}; expected 0 <= part < {parts}")
    return ArrayBook(found, parts)
