"""The parts of a graph, each asked by its number: in this process, or at servers.

Questions to several parts are begun together and collected one after the other, so that all parts
answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.graph import Graph
from penstock.store.answers import PartAnswers
from penstock.store.rows_target import RowsTarget


class Awaited(Protocol):
    """A question that was asked."""

    def result(self) -> Any:
        """Return the answer; raise what went wrong."""

    def abandon(self) -> None:
        """Give the question up: nothing of its answer is put anywhere any more. Idempotent."""


class Parts(Protocol):
    """Somebody for each part who answers `store.calls.StoreCalls`. Thread-safe."""

    @property
    def num_parts(self) -> int:
        """The number of parts."""

    def begin(
        self, part: int, verb: str, into: RowsTarget | None = None, **arguments: Any
    ) -> Awaited:
        """Ask about a part, and return without waiting for the answer.

        Args:
            part: The part.
            verb: The question; see `store.calls`.
            into: Where rows of the answer may be put as they come. It knows if that was done.
            **arguments: Its arguments.
        """

    def close(self) -> None:
        """Release what is held. Idempotent."""


class _Answered:
    """An answer that was given at once."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def result(self) -> Any:
        return self._answer

    def abandon(self) -> None:
        """Do nothing: it is answered."""


class LocalParts:
    """Parts that this process has opened."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = list(graphs)
        self._answers = [PartAnswers(graph) for graph in graphs]

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self._answers)

    def begin(
        self, part: int, verb: str, into: RowsTarget | None = None, **arguments: Any
    ) -> Awaited:
        """Answer at once."""
        return _Answered(getattr(self._answers[part], verb)(**arguments))

    def close(self) -> None:
        """Close the parts."""
        for graph in self.graphs:
            graph.close()
