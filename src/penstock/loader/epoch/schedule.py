"""Which batches an epoch of a loader has, in which order, and which of them this rank reads.

Everything follows from the inputs, the options and the seed. Nothing runs here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from penstock.client.channel.channel_options import parsed
from penstock.core.plan import EpochPlan, Position
from penstock.kernels.arrays import Ids, check_word
from penstock.loader.epoch.order import Drawn, OwnOrder
from penstock.loader.epoch.position import Course, digest_of
from penstock.loader.epoch.ranks import RankShare, others_have
from penstock.loader.epoch.run import Run
from penstock.loader.pyg.options import LoaderOptions
from penstock.loader.source.by_part import by_part
from penstock.loader.source.inputs import Inputs
from penstock.option_types import ChannelKeywords


@dataclass(frozen=True, eq=False)
class Schedule:
    """The epochs of a loader. Immutable: another seed or weight makes another schedule."""

    options: LoaderOptions
    inputs: Inputs
    ranks: RankShare
    seed: int
    channel_options: ChannelKeywords
    order: OwnOrder | None  # None: as given, or shuffled
    places: Ids | None = None  # where the inputs were among those given, if they were put in order

    @classmethod
    def of(cls, options: LoaderOptions, inputs: Inputs) -> Self:
        """Make the schedule of a loader; ValueError for invalid options."""
        places = None
        if options.order == "part":
            inputs, places = by_part(inputs)
        ranks = options.ranks(by_name=inputs.given == "split")
        seed = check_word(options.seed_for(ranks), "seed")
        shuffled = options.usual_order(inputs.num)
        channel_options: ChannelKeywords = {
            **options.channel_options(ranks, seed),
            "batch_size": options.batch_size if options.batch_sampler is None else 1,
            "drop_last": options.drop_last,
            "shuffle": bool(shuffled),
        }
        _check(channel_options, inputs)
        if shuffled is None and options.order is not None:
            raise ValueError(
                f"order is {options.order!r}, but a sampler gives the order of the inputs: give "
                "one of them"
            )
        order = OwnOrder(options) if shuffled is None else None
        return cls(options, inputs, ranks, seed, channel_options, order, places)

    @property
    def is_in_order(self) -> bool:
        """Return whether inputs are taken in the given order, at least within parts."""
        return self.order is None and not self.channel_options["shuffle"]

    @property
    def is_unshared(self) -> bool:
        """Return whether each rank shuffles the same inputs, as far as can be known.

        Loaders in order are for inference, which every rank, or the first, does for all inputs; and
        a user's sampler may share out by itself. Ranks that cannot be asked have the same inputs
        if they were given all of them, or a mask.
        """
        if self.ranks.process is None or self.order is not None or self.is_in_order:
            return False
        same = others_have(self.inputs.digest)
        return self.inputs.given in ("all", "mask") if same is None else same

    def seeded(self, seed: int) -> Schedule:
        """Return the same schedule with another seed."""
        return replace(self, seed=seed, channel_options={**self.channel_options, "seed": seed})

    def reweighed(self, weight: float) -> Schedule:
        """Return the same schedule with another share of the workers."""
        channel_options: ChannelKeywords = {**self.channel_options, "weight": weight}
        _check(channel_options, self.inputs)
        return replace(self, channel_options=channel_options)

    @property
    def course(self) -> Course:
        """Return what a saved position must match."""
        options = self.options
        usual = "shuffled" if self.channel_options["shuffle"] else "given"
        if options.order is not None:
            usual = f"{usual}, by {options.order}"
        size = 0 if options.batch_sampler is not None else options.batch_size
        order = usual if self.order is None else "sampler"
        process = self.ranks.process
        return Course(
            self.inputs.num,
            size,
            options.drop_last,
            order,
            self.seed,
            None if process is None else process.world_size,
        )

    def __len__(self) -> int:
        """Return the number of batches of an epoch for each rank."""
        if self.order is not None:
            return self._list_of(self.order.num_batches).batches_per_rank
        return self._even(Position(), self.inputs, self.channel_options).plan.batches_per_rank

    def run_from(self, position: Position, digest: str | None = None) -> Run:
        """Return the epoch from a position on.

        Args:
            position: where to start.
            digest: digest that the epoch's order must have, if any; ValueError if it has another.
        """
        if self.order is None:
            run = self._even(position, self.inputs, self.channel_options)
            run.places, run.digest = self.places, self._digest
            why = "the graph is cut otherwise than when the state was saved: its parts are others"
        else:
            drawn = self.order.draw(self.inputs.num, self.seed, position.epoch)
            run = self._drawn(position, drawn)
            run.digest = digest_of(drawn.places)
            why = (
                f"sampler gives epoch {position.epoch} another order than when the state was "
                "saved: let it draw from torch's default generator, which is set for each epoch, "
                "or have a `set_epoch` that its order follows from"
            )
        if digest not in (None, run.digest):
            raise ValueError(why)
        return run

    @cached_property
    def _digest(self) -> str | None:
        """A digest of how inputs are in parts; None if they are not put in that order."""
        if not self.inputs.groups:
            return None
        places = np.empty(0, np.int64) if self.places is None else self.places
        return digest_of(np.concatenate([np.array(self.inputs.groups, np.int64), places]))

    def _drawn(self, position: Position, drawn: Drawn) -> Run:
        channel_options = self.channel_options
        if drawn.is_even:
            if drawn.sizes is not None:
                channel_options = {
                    **channel_options,
                    "batch_size": drawn.batch_size,
                    "drop_last": False,
                }
            run = self._even(position, self.inputs.at(drawn.places), channel_options)
            run.places = drawn.places
            return run
        assert drawn.sizes is not None
        stops = np.cumsum(drawn.sizes)[:-1]
        batches = np.split(drawn.places, stops)
        uneven = [self.inputs.at(places) for places in batches]
        plan = self._list_of(len(uneven), position.delivered)
        return Run(
            epoch=position.epoch,
            plan=plan,
            inputs=self.inputs,
            channel_options=channel_options,
            uneven=uneven,
            places=batches,
        )

    def _even(self, position: Position, inputs: Inputs, channel_options: ChannelKeywords) -> Run:
        plan = EpochPlan(
            inputs.num,
            channel_options["batch_size"],
            channel_options.get("drop_last", False),
            self.ranks.world_size,
            self.options.remainder,
            position.delivered,
            inputs.groups,
        )
        return Run(epoch=position.epoch, plan=plan, inputs=inputs, channel_options=channel_options)

    def _list_of(self, batches: int, first: int = 0) -> EpochPlan:
        """Return the plan of a list with this number of batches."""
        return EpochPlan(batches, 1, False, self.ranks.world_size, self.options.remainder, first)


def _check(channel_options: ChannelKeywords, inputs: Inputs) -> None:
    """Raise ValueError for options that a hub would refuse, now and not with the first batch."""
    EpochPlan(inputs.num, channel_options["batch_size"])
    _, options = parsed(channel_options)
    options.check()
