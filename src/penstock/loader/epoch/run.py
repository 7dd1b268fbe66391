"""One epoch that a loader reads: where it began and how far it has come.

Plain bookkeeping. A batch is delivered when the user's loop was given it. A run may be behind its
channel, by the batches between the two; the run's position is the one that is saved and resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.client.channel.batch import Batch
from penstock.core.plan import EpochPlan, Position
from penstock.kernels.arrays import Ids
from penstock.loader.source.adhoc import AdhocBatches
from penstock.loader.source.inputs import Inputs
from penstock.loader.source.remote_adhoc import RemoteAdhocBatches
from penstock.option_types import ChannelKeywords
from penstock.sampling.inputs import positions_of
from penstock.sampling.spec import Feed


@dataclass(eq=False, kw_only=True)
class Run:
    """One rank's progress through an epoch.

    Attributes:
        uneven: The inputs of each batch, if batches differ in size.
        places: The positions among the loader's inputs, if they are taken in another order than the
            usual one: a sampler's, or by part. A list of them for each batch if these are uneven.
        by_user: Whether the user's own `collate_fn` makes the batches.
    """

    epoch: int
    plan: EpochPlan
    inputs: Inputs
    channel_options: ChannelKeywords
    uneven: Sequence[Inputs] | None = None
    places: Ids | Sequence[Ids] | None = None
    by_user: bool = False
    digest: str | None = None  # of its order, if that is not the usual one
    step: int = 0  # the next step to be delivered
    touched: bool = False  # a batch has been asked for
    # An exception was raised while a batch was on its way to the user: the channel is ahead.
    astray: bool = False

    @property
    def is_uneven(self) -> bool:
        return self.uneven is not None

    @property
    def is_adhoc(self) -> bool:
        """Return whether its batches are made one by one in this process, and not by a channel."""
        return self.by_user or self.uneven is not None

    @property
    def is_over(self) -> bool:
        """Return whether all batches have been delivered."""
        return self.step >= self.plan.batches_per_rank

    @property
    def position(self) -> Position:
        """Return the position after the last delivered batch."""
        return self.plan.position(self.epoch, self.step)

    def inputs_of(self, batch: Batch) -> Inputs:
        """Return the inputs a batch was sampled from: its `input_id` are positions among these."""
        return self.inputs if self.uneven is None else self.uneven[batch.index]

    def make(self, maker: AdhocBatches | RemoteAdhocBatches, step: int) -> Batch | None:
        """Make the batch of a step that no channel makes; None after the last step.

        One that the user's `collate_fn` makes has no arrays: it says which batch is due.
        """
        if step >= self.plan.batches_per_rank:
            return None
        index = self.plan.global_index(self.channel_options.get("rank", 0), step)
        if self.by_user:
            size = len(self.places_of(index))
            return Batch({}, {"batch_size": size}, epoch=self.epoch, step=step, index=index)
        assert self.uneven is not None
        return maker.make(self.uneven[index], self._seed, self.epoch, index, step)

    def places_of(self, index: int) -> list[int]:
        """Return the positions among the loader's inputs that a batch of the list takes."""
        if self.uneven is not None:
            assert self.places is not None
            return list(map(int, self.places[index]))
        found = positions_of(self._feed, self.epoch, index)
        if self.places is not None:
            found = np.asarray(self.places)[found]
        return list(map(int, found))

    def key_of(self, index: int) -> tuple[int, int, int]:
        """Return what everything random in a batch of the list follows from."""
        return self._seed, self.epoch, index

    @property
    def _feed(self) -> Feed:
        """What a channel would be told of the list of batches."""
        return Feed(
            num_inputs=self.plan.num_inputs,
            batch_size=self.plan.batch_size,
            shuffle=self.channel_options.get("shuffle", False),
            drop_last=self.plan.drop_last,
            seed=self._seed,
            groups=self.plan.groups,
        )

    @property
    def _seed(self) -> int:
        return self.channel_options.get("seed", 0)
