"""Memory for one batch, as those who write into it see it."""

from __future__ import annotations

from typing import Protocol

from penstock.errors import PenstockError
from penstock.kernels.arrays import Array


class SlotTooSmall(PenstockError):
    """A batch does not fit the memory it is written to; `needed` is at least what it takes."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(f"the batch needs {needed} bytes, there are {room}")
        self.needed = needed
        self.room = room

    def __reduce__(self) -> tuple[type[SlotTooSmall], tuple[int, int]]:
        return type(self), (self.needed, self.room)


class BatchBuffer(Protocol):
    """Hands memory out array by array."""

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """The next array, in its storage dtype."""

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array has turned out smaller: the first elements of its room, in C order."""


class BatchMemory(BatchBuffer, Protocol):
    """A buffer of so many bytes, in which a batch can be begun again."""

    @property
    def room(self) -> int: ...

    def clear(self) -> None:
        """Begins anew: what was handed out so far means nothing."""
