"""A batch as its reader gets it: NumPy arrays, and facts that are no arrays.

The arrays lie in memory shared with the sampling processes, or in private memory; a reader need not
know which. This module knows neither torch nor how the batch came here.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Batch:
    """One batch. Its memory stays the reader's for as long as any of its arrays lives.

    Attributes:
        index: The batch's position in the epoch's list for all ranks. For a substitute, the index
            of the batch that was really sampled.
        step: The reader's own count of batches.
        dtypes: The dtype of each array, also of those that NumPy has no type for.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    facts: Mapping[str, Any]
    epoch: int
    step: int
    index: int
    substitute: bool = False
    copied: bool = False  # into private memory, because the reader holds many others
    cost: float = 0.0  # seconds that sampling took
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        try:
            return self.arrays[name]
        except KeyError:
            there = ", ".join(map(repr, self.arrays)) or "none"
            raise KeyError(f"the batch has no {name!r}; it has: {there}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __bool__(self) -> bool:
        return True  # also without arrays: only None means that there are no more batches

    def keys(self) -> KeysView[str]:
        """Return the names of the arrays."""
        return self.arrays.keys()

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays together."""
        return sum(array.nbytes for array in self.arrays.values())

    def __repr__(self) -> str:
        what = ", ".join(f"{name}={list(array.shape)}" for name, array in self.arrays.items())
        return f"Batch(epoch={self.epoch}, step={self.step}, index={self.index}, {what})"
