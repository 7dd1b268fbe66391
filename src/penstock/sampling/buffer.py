"""The memory for one batch, as its writers see it."""

from __future__ import annotations

from typing import Protocol

from penstock.errors import PenstockError
from penstock.kernels.arrays import Array


class SlotTooSmall(PenstockError):
    """A batch does not fit the memory it is written to; it needs at least `needed` bytes."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(f"the batch needs {needed} bytes, there are {room}")
        self.needed = needed
        self.room = room

    def __reduce__(self) -> tuple[type[SlotTooSmall], tuple[int, int]]:
        return type(self), (self.needed, self.room)


class BatchBuffer(Protocol):
    """Allocates the memory of a batch array by array."""

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return the next array, in its storage dtype."""

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        """Shrink an array that turned out smaller: keep its first elements, in C order."""


class BatchMemory(BatchBuffer, Protocol):
    """A buffer of `room` bytes, in which a batch can be started again."""

    @property
    def room(self) -> int: ...

    def clear(self) -> None:
        """Start again: arrays allocated so far become invalid."""
