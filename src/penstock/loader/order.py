"""In which order an epoch takes its inputs: the usual one, or that of a user's sampler.

The usual orders are a matter of arithmetic, and cost nothing. A sampler is asked once per epoch,
for all of it, with torch's generator set by (seed, epoch): so that what it draws from there is a
function of these, on every rank and after every restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from penstock.core.plan import num_batches
from penstock.kernels.reference import fold
from penstock.loader.options import Options

# "order", and a version.
ORDER_DOMAIN: Final = 0x6F72646572000001

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Drawn:
    """The order of one epoch: places among the inputs, and the sizes of its batches."""

    places: Ids
    sizes: tuple[int, ...] | None  # None: all alike, but the last

    @property
    def is_even(self) -> bool:
        """Whether all batches but the last have one size, and the last is not larger."""
        return self.sizes is None or len(self._sizes_before_last) <= 1

    @property
    def batch_size(self) -> int:
        """The size of batches that have one."""
        assert self.sizes is not None
        return max(self.sizes, default=1)

    @property
    def _sizes_before_last(self) -> set[int]:
        assert self.sizes is not None
        before = set(self.sizes[:-1])
        last = self.sizes[-1] if self.sizes else 0
        return before | {last} if any(size < last for size in before) else before


def draw(options: Options, num_inputs: int, seed: int, epoch: int) -> Drawn:
    """Asks the user's sampler for an epoch."""
    sampler = options.sampler if options.batch_sampler is None else options.batch_sampler
    _follow(sampler, epoch)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(fold(ORDER_DOMAIN, seed), epoch))
        given = list(sampler)
    if options.batch_sampler is None:
        return Drawn(_places(given, num_inputs, "sampler"), None)
    batches = [_places(batch, num_inputs, "batch_sampler") for batch in given]
    places = np.concatenate([np.empty(0, np.int64), *batches])
    return Drawn(places, tuple(map(len, batches)))


def _follow(sampler: Any, epoch: int) -> None:
    """Samplers that count epochs are told which one it is."""
    for counts in (sampler, getattr(sampler, "sampler", None)):
        set_epoch = getattr(counts, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def _places(given: Iterable[Any] | Sequence[Any], num_inputs: int, who: str) -> Ids:
    places = np.asarray([int(place) for place in given], np.int64)
    if len(places) and not -num_inputs <= places.min() <= places.max() < num_inputs:
        wrong = places.min() if places.min() < -num_inputs else places.max()
        raise IndexError(f"{who} gave the index {wrong}; the loader has {num_inputs} inputs")
    return np.where(places < 0, places + num_inputs, places)


def length(options: Options, num_inputs: int) -> int:
    """How many batches an epoch's list has; TypeError for a sampler that cannot tell."""
    if options.batch_sampler is not None:
        return len(options.batch_sampler)
    inputs = len(options.sampler) if options.own_order else num_inputs
    return num_batches(inputs, options.batch_size, options.drop_last)
