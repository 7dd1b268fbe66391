"""The errors Penstock raises on its own account.

Bad arguments are plain `ValueError`; these are for things that go wrong outside the caller's hands.
"""

from __future__ import annotations

from collections.abc import Sequence


class PenstockError(Exception):
    """Root of every error that is Penstock's own."""


class GraphFormatError(PenstockError):
    """A folder on disk is not a graph this version can read; names the file and what is wrong."""


class BatchTooLarge(PenstockError):
    """A batch does not fit the memory it was given; `nodes` and `edges` say how much it needs."""

    def __init__(self, message: str, nodes: Sequence[int], edges: Sequence[int]) -> None:
        super().__init__(message)
        self.nodes = list(nodes)
        self.edges = list(edges)

    @classmethod
    def for_arrays(
        cls,
        nodes: Sequence[int],
        edges: Sequence[int],
        node_room: Sequence[int],
        edge_room: Sequence[int],
    ) -> BatchTooLarge:
        """Names the first list that is too short."""
        for kind, needed, room in (("nodes", nodes, node_room), ("edges", edges, edge_room)):
            for number, (need, have) in enumerate(zip(needed, room, strict=True)):
                if need > have:
                    message = f"the batch needs room for {need} {kind} of type {number}, not {have}"
                    return cls(message, nodes, edges)
        return cls("the batch does not fit", nodes, edges)

    def __reduce__(self) -> tuple[type[BatchTooLarge], tuple[str, list[int], list[int]]]:
        return type(self), (str(self), self.nodes, self.edges)
