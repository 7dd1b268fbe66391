"""What torch calls a loader's `dataset` and `sampler`, for those who know loaders by these names.

Nothing here is iterated to load anything. But Lightning, to share inputs out among ranks or to
number them, makes loaders again: of their arguments as far as it knows them, with a sampler of its
own over the old `dataset`. And it says which epoch is next to the sampler, not to the loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, overload

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler


class InputIndices(Sequence[int]):
    """0, 1, …: one for each input. Has the options that others do not know, to be handed on."""

    def __init__(self, count: int, options: Mapping[str, Any]) -> None:
        self._range = range(count)
        self.options = dict(options)

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> range: ...
    def __getitem__(self, place: int | slice) -> int | range:
        return self._range[place]

    def __eq__(self, other: object) -> bool:
        return self._range == (other._range if isinstance(other, InputIndices) else other)

    def __hash__(self) -> int:
        return hash(self._range)

    def __repr__(self) -> str:
        return repr(self._range)


class InOrder(SequentialSampler):
    """Torch's, and can be told the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """As for torch's `DistributedSampler`."""
        self.epoch = epoch


class Shuffled(RandomSampler):
    """Torch's, and can be told the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """As for torch's `DistributedSampler`."""
        self.epoch = epoch


def sampler_over(
    places: InputIndices, shuffle: bool | None, generator: torch.Generator | None
) -> Sampler[int]:
    """The one that torch would make. It refuses to shuffle nothing."""
    if shuffle and len(places):
        return Shuffled(places, generator=generator)
    return InOrder(places)


def never(_: Any) -> NoReturn:
    """Torch's `collate_fn`."""
    raise AssertionError("torch's own iterators are not used")


class Hint:
    """The epoch that a sampler was told to be next, by somebody who knows no loader."""

    def __init__(self, sampler: object) -> None:
        self._sampler = sampler
        self._known = self._told()

    def news(self) -> int | None:
        """What was said since it was last asked for, if anything."""
        before, self._known = self._known, self._told()
        return None if self._known == before else self._known

    def _told(self) -> Any:
        return getattr(self._sampler, "epoch", None)
