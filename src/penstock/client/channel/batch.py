"""A batch as its reader gets it: NumPy arrays, and facts that are no arrays.

The arrays lie in memory shared with the sampling processes, or in private memory; a reader need not
know which. This module knows neither torch nor how the batch came here.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Batch:
    """One batch. Its memory stays the reader's for as long as any of its arrays lives.

    `batch[name]` is an array; iterating gives the names, as for a dict.

    Attributes:
        arrays: The arrays, by name: `n_id`, `edge_index`, attributes such as `x`, and others.
        facts: What is no array, by name: `batch_size`, `num_sampled_nodes`, and others.
        epoch: The epoch that the batch belongs to.
        step: The reader's own count of batches.
        index: The batch's position in the epoch's list for all ranks. For a substitute, the index
            of the batch that was really sampled.
        substitute: Whether it stands in for a batch that could not be made.
        retries: How often it raised an error before, and was tried again (`retry_errors`).
        copied: Whether it was copied into private memory, because the reader holds many others.
        cost: Seconds that sampling took.
        dtypes: The dtype of each array, also of those that NumPy has no type for.
        memory: The memory that the arrays are in, if it is used again for other batches: whole
            pages, which nothing else shares. It lives at least as long as the arrays.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> spec = ps.NeighborSpec(num_neighbors=(2,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", "train", batch_size=2)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch
        Batch(epoch=0, step=0, index=0, n_id=[3], edge_index=[2, 2], e_id=[2], input_id=[2])
        >>> batch["n_id"].tolist(), batch.facts["batch_size"]
        ([0, 2, 1], 2)
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
    retries: int = 0
    memory: npt.NDArray[np.uint8] | None = None

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
