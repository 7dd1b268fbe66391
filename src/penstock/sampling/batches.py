"""The interface of what makes the batches of one spec, of any kind.

There are two implementations: sampling into the memory where a batch will be read (`collate`), or
into separate memory and then copying (`buffered`). Callers see no difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.sampling.buffer import BatchMemory
from penstock.sampling.names import Owner
from penstock.sampling.request import Request

Reached = Callable[[str], object]

_Known = TypeVar("_Known")


class Batches(ABC):
    """Makes the batches of one spec; for one thread at a time."""

    @abstractmethod
    def make(self, request: Request, memory: BatchMemory, reached: Reached) -> dict[str, Any]:
        """Write a batch into `memory`, and return the values that are no arrays.

        Args:
            request: Which batch.
            memory: Where it is written.
            reached: Called with "writing" when the batch is sampled, for tests of faults.

        Raises:
            SlotTooSmall: Says how much memory the batch needs. Reusable results of the attempt are
                kept, for the next request if it is for the same batch.
        """

    @abstractmethod
    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which nearly any batch of so many inputs of a type fits."""

    @abstractmethod
    def drop(self) -> None:
        """Forget what was kept of a batch that did not fit."""

    def load(self) -> None:
        """Load what the first batch would wait for. Most kinds have nothing to load."""
        return


class Awaited(Generic[_Known]):
    """Keeps what is known about a batch that did not fit: it is likely next, with more memory."""

    def __init__(self) -> None:
        self._kept: tuple[Request, _Known] | None = None

    def keep(self, request: Request, known: _Known) -> None:
        """Keep what is known about a batch, replacing another one."""
        self._kept = request, known

    def drop(self) -> None:
        """Forget it."""
        self._kept = None

    def take(self, request: Request) -> _Known | None:
        """Return what is known about the requested batch; if another was kept, forget that one."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and request.is_same(kept[0]) else None
