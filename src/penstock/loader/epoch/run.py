"""One epoch that a loader reads: where it began and how far it has come.

Plain bookkeeping. A batch is delivered when the user's loop was given it. A run may be behind its
channel, by the batches between the two; the run's position is the one that is saved and resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.channel.batch import Batch
from penstock.core.plan import EpochPlan, Position
from penstock.loader.source.adhoc import AdhocBatches
from penstock.loader.source.inputs import Inputs
from penstock.loader.source.remote_adhoc import RemoteAdhocBatches
from penstock.option_types import ChannelKeywords


@dataclass(eq=False, kw_only=True)
class Run:
    """One rank's progress through an epoch. `uneven`: inputs of batches that differ in size."""

    epoch: int
    plan: EpochPlan
    inputs: Inputs
    channel_options: ChannelKeywords
    uneven: Sequence[Inputs] | None = None
    digest: str | None = None  # of its order, if that is a sampler's
    step: int = 0  # the next step to be delivered
    touched: bool = False  # a batch has been asked for
    # An exception was raised while a batch was on its way to the user: the channel is ahead.
    astray: bool = False

    @property
    def is_uneven(self) -> bool:
        return self.uneven is not None

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
        """Make the batch of a step of an uneven epoch; None after the last step."""
        assert self.uneven is not None
        if step >= self.plan.batches_per_rank:
            return None
        index = self.plan.global_index(self.channel_options.get("rank", 0), step)
        seed = self.channel_options.get("seed", 0)
        return maker.make(self.uneven[index], seed, self.epoch, index, step)
