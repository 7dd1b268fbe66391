"""The parameters of a demonstration, as every process of it is given them.

Plain data. The number of batches and the moments of the faults follow from it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.core.plan import EpochPlan

# Enough steps that an epoch can be watched, few enough that overhead does not dominate.
_STEPS_WANTED: Final = 16
_SMALLEST: Final = 16
_LARGEST: Final = 256


class Moment(msgspec.Struct, frozen=True):
    """A point in a rank's training: before this step of this epoch."""

    epoch: int
    step: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a demonstration. `train` is the number of nodes to train on.

    `servers` is the number of parts that the graph is cut into, each at a server; 0: it is whole.
    """

    ranks: int
    workers: int
    epochs: int
    seed: int
    classes: int
    width: int
    train: int
    num_neighbors: tuple[int, ...] = (10, 5)
    hidden: int = 64
    learning_rate: float = 0.01
    pause_s: float = 2.5
    servers: int = 0

    @property
    def batch_size(self) -> int:
        """The largest batch size that leaves every rank enough steps to be watched."""
        return min(_LARGEST, max(_SMALLEST, self.train // (self.ranks * _STEPS_WANTED)))

    @property
    def steps(self) -> int:
        """Batches of an epoch for each rank."""
        return EpochPlan(self.train, self.batch_size, world_size=self.ranks).batches_per_rank

    @property
    def batches(self) -> int:
        """Batches of all epochs and ranks together."""
        return self.ranks * self.epochs * self.steps

    # --- trouble -----------------------------------------------------------------------------

    @property
    def kill_after(self) -> int:
        """The number of trained batches after which a worker, or a server, is killed."""
        return self.batches // 3

    @property
    def killed_part(self) -> int:
        """The part that has two servers, of which one is killed."""
        return min(1, self.servers - 1)

    @property
    def pausing_rank(self) -> int:
        """The rank that pauses."""
        return min(1, self.ranks - 1)

    @property
    def pause_at(self) -> Moment:
        """When it pauses: early in an epoch, so that the others have batches to go on with."""
        epoch = min(self.epochs - 1, max(1, round(0.6 * self.epochs)))
        return Moment(epoch, self.steps // 8)

    def pauses(self, rank: int, epoch: int, step: int) -> bool:
        """Return whether this rank pauses at this moment."""
        return rank == self.pausing_rank and Moment(epoch, step) == self.pause_at
