"""What makes the batches of one spec, whichever its kind.

There are two ways: into the memory where a batch will be read (`collate`), or into memory of its
own and then there (`buffered`). Who asks for batches sees no difference.
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
    """Makes the batches of one spec; one thread at a time."""

    @abstractmethod
    def make(self, request: Request, memory: BatchMemory, reached: Reached) -> dict[str, Any]:
        """Writes a batch into `memory`, and returns what is no array.

        Args:
            request: Which batch.
            memory: Where it goes.
            reached: Called with "writing" when the batch is sampled, for tests of faults.

        Raises:
            SlotTooSmall: It says how much memory the batch needs. What could be kept of the attempt
                has been, for the next request if that is for the same batch.
        """

    @abstractmethod
    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Room in which nearly any batch of so many inputs of a type fits."""

    @abstractmethod
    def drop(self) -> None:
        """Forgets what was kept of a batch that did not fit."""

    def load(self) -> None:
        """Loads what the first batch would wait for. Most kinds have nothing of the sort."""
        return


class Awaited(Generic[_Known]):
    """What is known of a batch that did not fit: most likely it is next, with more memory."""

    def __init__(self) -> None:
        self._kept: tuple[Request, _Known] | None = None

    def keep(self, request: Request, known: _Known) -> None:
        """Remembers a batch, in place of another one."""
        self._kept = request, known

    def drop(self) -> None:
        """Forgets it."""
        self._kept = None

    def take(self, request: Request) -> _Known | None:
        """What is known of the batch that is asked for; of any other it is forgotten."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and request.is_same(kept[0]) else None
