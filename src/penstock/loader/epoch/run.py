"""One epoch on its way through a loader: where it began, how far it has come.

Plain bookkeeping. What has been delivered is what the user's loop was given: a run is behind its
channel by what is between the two, and it is the run that is saved and gone on from.
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
    """A rank's way through an epoch. `uneven` has the inputs of batches that differ in size."""

    epoch: int
    plan: EpochPlan
    inputs: Inputs
    channel_options: ChannelKeywords
    uneven: Sequence[Inputs] | None = None
    digest: str | None = None  # of its order, where that is a sampler's
    step: int = 0  # the next to be delivered
    touched: bool = False  # somebody has asked for a batch
    # Something was on its way to the user when an exception struck: the channel is ahead.
    astray: bool = False

    @property
    def is_uneven(self) -> bool:
        return self.uneven is not None

    @property
    def is_over(self) -> bool:
        """Whether everything has been delivered."""
        return self.step >= self.plan.batches_per_rank

    @property
    def position(self) -> Position:
        """Where training stands."""
        return self.plan.position(self.epoch, self.step)

    def inputs_of(self, batch: Batch) -> Inputs:
        """What a batch was sampled from: its `input_id` are places among these."""
        return self.inputs if self.uneven is None else self.uneven[batch.index]

    def make(self, maker: AdhocBatches | RemoteAdhocBatches, step: int) -> Batch | None:
        """The batch of a step, of an epoch whose batches differ in size; None after the last."""
        assert self.uneven is not None
        if step >= self.plan.batches_per_rank:
            return None
        index = self.plan.global_index(self.channel_options.get("rank", 0), step)
        seed = self.channel_options.get("seed", 0)
        return maker.make(self.uneven[index], seed, self.epoch, index, step)
