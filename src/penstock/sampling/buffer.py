"""Memory for one batch, as those who write into it see it."""

from __future__ import annotations

from typing import Protocol

from penstock.kernels.arrays import Array


class BatchBuffer(Protocol):
    """Hands memory out array by array."""

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """The next array, in its storage dtype."""

    def reshape(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array has turned out smaller: the first elements of its room, in C order."""
