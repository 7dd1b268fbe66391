"""Objects for the attributes `dataset` and `sampler` that torch's loaders have.

Nothing here is iterated to load anything. But Lightning makes loaders again, to share inputs among
ranks or to number them: from the arguments it knows, with a sampler of its own over the old
`dataset`. And it tells the next epoch to the sampler, not to the loader.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, overload

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler


class InputIndices(Sequence[int]):
    """The indices 0, 1, … of the inputs. Carries options that Lightning does not know."""

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
    """Torch's sequential sampler with a `set_epoch`."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, as in torch's `DistributedSampler`."""
        self.epoch = epoch


class Shuffled(RandomSampler):
    """Torch's random sampler with a `set_epoch`."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, as in torch's `DistributedSampler`."""
        self.epoch = epoch


def sampler_over(
    places: InputIndices, shuffle: bool | None, generator: torch.Generator | None
) -> Sampler[int]:
    """Return the sampler that torch would make. Torch's random sampler refuses an empty dataset."""
    if shuffle and len(places):
        return Shuffled(places, generator=generator)
    return InOrder(places)


def unhooked(loader: object, init: Callable[..., None]) -> Callable[..., None]:
    """Return torch's constructor as a loader shall call it.

    While Lightning calls a hook such as `train_dataloader`, it wraps the constructors of all
    classes of loaders, and keeps the arguments of the outermost to make the loader again. Classes
    that are imported only in the hook are not wrapped, and torch's arguments would be taken for
    theirs. Without any, Lightning takes the loader's attributes, as where it is passed to `fit`.
    """
    return init if hasattr(loader, "__pl_saved_args") else inspect.unwrap(init)


def never(_: Any) -> NoReturn:
    """Stand in for torch's `collate_fn`, which is never called."""
    raise AssertionError("torch's own iterators are not used")


class Hint:
    """Reports the epoch that was set on a sampler by code that does not know the loader."""

    def __init__(self, sampler: object) -> None:
        self._sampler = sampler
        self._known = self._told()

    def news(self) -> int | None:
        """Return the epoch that was set since the last call, or None."""
        before, self._known = self._known, self._told()
        return None if self._known == before else self._known

    def _told(self) -> Any:
        return getattr(self._sampler, "epoch", None)
