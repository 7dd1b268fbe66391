"""The order in which an epoch takes its inputs: the usual one, or that of a user's sampler.

The usual orders are arithmetic and cost nothing. A user's sampler is asked once per epoch, for the
whole epoch, with torch's generator seeded from (seed, epoch). So what it draws from that generator
depends on these two only, on every rank and after every restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from penstock.core.plan import num_batches
from penstock.kernels.reference import fold
from penstock.loader.pyg.options import LoaderOptions

# The word "order" in ASCII, and a version.
ORDER_DOMAIN: Final = 0x6F72646572000001
# Limits for one epoch of a sampler without a length: this many inputs, or each input this often. A
# sampler that gives more is taken for an endless one.
_UNTOLD: Final = 1_000_000
_UNTOLD_TIMES: Final = 100

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Drawn:
    """The order of one epoch: positions among the inputs, and the sizes of its batches."""

    places: Ids
    sizes: tuple[int, ...] | None  # None: all equal, except the last

    @property
    def is_even(self) -> bool:
        """Return whether all batches but the last have one size and the last is not larger."""
        return self.sizes is None or len(self._sizes_before_last) <= 1

    @property
    def batch_size(self) -> int:
        """Return the common batch size of an even order."""
        assert self.sizes is not None
        return max(self.sizes, default=1)

    @property
    def _sizes_before_last(self) -> set[int]:
        assert self.sizes is not None
        before = set(self.sizes[:-1])
        last = self.sizes[-1] if self.sizes else 0
        return before | {last} if any(size < last for size in before) else before


class OwnOrder:
    """A user's own sampler: of inputs, or of batches of inputs."""

    def __init__(self, options: LoaderOptions) -> None:
        self._of_batches = options.batch_sampler is not None
        self._sampler = options.batch_sampler if self._of_batches else options.sampler
        self._batch_size = options.batch_size
        self._drop_last = options.drop_last
        self._counting = [
            _Counting(asked)
            for asked in (self._sampler, getattr(self._sampler, "sampler", None))
            if callable(getattr(asked, "set_epoch", None))
        ]

    @property
    def num_batches(self) -> int:
        """Return the number of batches of an epoch; TypeError if the sampler has no length."""
        if self._of_batches:
            return len(self._sampler)
        return num_batches(len(self._sampler), self._batch_size, self._drop_last)

    def draw(self, num_inputs: int, seed: int, epoch: int) -> Drawn:
        """Ask the sampler for one epoch; ValueError if it does not end."""
        for sampler in self._counting:
            sampler.follow(epoch)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(fold(fold(ORDER_DOMAIN, seed), epoch))
            given = list(self._ending(num_inputs))
        if not self._of_batches:
            return Drawn(_places(given, num_inputs, "sampler"), None)
        batches = [_places(batch, num_inputs, "batch_sampler") for batch in given]
        places = np.concatenate([np.empty(0, np.int64), *batches])
        return Drawn(places, tuple(map(len, batches)))

    def _ending(self, num_inputs: int) -> Iterator[Any]:
        """Yield what the sampler gives. A sampler with a length is trusted to end."""
        left = max(_UNTOLD, _UNTOLD_TIMES * num_inputs)
        if _tells_length(self._sampler):
            yield from self._sampler
            return
        for given in self._sampler:
            batch = list(given) if self._of_batches else [given]
            yield batch if self._of_batches else given
            left -= max(1, len(batch))
            if left < 0:
                who = "batch_sampler" if self._of_batches else "sampler"
                raise ValueError(
                    f"{who} comes to no end: it has given far more than the {num_inputs:,} inputs "
                    "of the loader, and is asked for an epoch at a time. Let it end; or, if so "
                    "many are meant, have it say so by __len__"
                )


class _Counting:
    """A sampler with `set_epoch`: it is told the epoch, unless somebody else tells it."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._told = getattr(sampler, "epoch", None)

    def follow(self, epoch: int) -> None:
        if getattr(self._sampler, "epoch", None) == self._told:
            self._sampler.set_epoch(epoch)
            self._told = getattr(self._sampler, "epoch", None)


def _tells_length(sampler: Any) -> bool:
    try:
        len(sampler)
    except (TypeError, NotImplementedError):
        return False
    return True


def _places(given: Iterable[Any] | Sequence[Any], num_inputs: int, who: str) -> Ids:
    places = np.asarray([int(place) for place in given], np.int64)
    if len(places) and not -num_inputs <= places.min() <= places.max() < num_inputs:
        wrong = places.min() if places.min() < -num_inputs else places.max()
        raise IndexError(f"{who} gave the index {wrong}; the loader has {num_inputs} inputs")
    return np.where(places < 0, places + num_inputs, places)
