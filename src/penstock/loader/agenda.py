"""What an epoch of a loader consists of: which batches, in which order, which of them for us.

Everything follows from the inputs, the options and the seed; nothing runs here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from penstock.client.terms import ChannelTerms, cutting, wishes
from penstock.core.plan import EpochPlan, Position, Remainder
from penstock.hub.channels import check_wishes
from penstock.kernels.arrays import check_word
from penstock.loader.inputs import Inputs
from penstock.loader.options import Options
from penstock.loader.order import Drawn, OwnOrder
from penstock.loader.position import Course, digest_of
from penstock.loader.ranks import Ranks
from penstock.loader.run import Run
from penstock.sampling.spec import Feed
from penstock.wire.messages import Register


@dataclass(frozen=True, eq=False)
class Agenda:
    """The epochs of a loader. Another seed, or weight, is another agenda."""

    options: Options
    inputs: Inputs
    ranks: Ranks
    seed: int
    terms: ChannelTerms
    order: OwnOrder | None  # None: as given, or shuffled

    @classmethod
    def of(cls, options: Options, inputs: Inputs) -> Self:
        """ValueError for options that make no sense."""
        ranks = options.ranks()
        seed = check_word(options.seed_for(ranks), "seed")
        shuffled = options.usual_order(inputs.num)
        terms: ChannelTerms = {
            **options.terms(ranks, seed),
            "batch_size": options.batch_size if options.batch_sampler is None else 1,
            "drop_last": options.drop_last,
            "shuffle": bool(shuffled),
        }
        _check(terms, inputs)
        order = OwnOrder(options) if shuffled is None else None
        return cls(options, inputs, ranks, seed, terms, order)

    @property
    def is_in_order(self) -> bool:
        """Whether inputs are taken as given."""
        return self.order is None and not self.terms["shuffle"]

    def seeded(self, seed: int) -> Agenda:
        """The same by another seed."""
        return replace(self, seed=seed, terms={**self.terms, "seed": seed})

    def reweighed(self, weight: float) -> Agenda:
        """The same with another share of the workers."""
        terms: ChannelTerms = {**self.terms, "weight": weight}
        _check(terms, self.inputs)
        return replace(self, terms=terms)

    @property
    def course(self) -> Course:
        """What a position in it must go with."""
        options = self.options
        usual = "shuffled" if self.terms["shuffle"] else "given"
        size = 0 if options.batch_sampler is not None else options.batch_size
        order = usual if self.order is None else "sampler"
        return Course(self.inputs.num, size, options.drop_last, order, self.seed)

    def __len__(self) -> int:
        """Batches of an epoch, for each rank."""
        if self.order is not None:
            return self._list_of(self.order.num_batches).batches_per_rank
        return self._even(Position(), self.inputs, self.terms).plan.batches_per_rank

    def run_from(self, position: Position, digest: str | None = None) -> Run:
        """The epoch from a position on; its order must have this digest, if one is given."""
        if self.order is None:
            return self._even(position, self.inputs, self.terms)
        drawn = self.order.draw(self.inputs.num, self.seed, position.epoch)
        run = self._drawn(position, drawn)
        run.digest = digest_of(drawn.places)
        if digest not in (None, run.digest):
            raise ValueError(
                f"sampler gives epoch {position.epoch} another order than when the state was "
                "saved: let it draw from torch's default generator, which is set for each epoch, "
                "or have a `set_epoch` that its order follows from"
            )
        return run

    def _drawn(self, position: Position, drawn: Drawn) -> Run:
        terms = self.terms
        if drawn.is_even:
            if drawn.sizes is not None:
                terms = {**terms, "batch_size": drawn.batch_size, "drop_last": False}
            return self._even(position, self.inputs.at(drawn.places), terms)
        assert drawn.sizes is not None
        stops = np.cumsum(drawn.sizes)[:-1]
        uneven = [self.inputs.at(places) for places in np.split(drawn.places, stops)]
        plan = self._list_of(len(uneven), position.delivered)
        return Run(epoch=position.epoch, plan=plan, inputs=self.inputs, terms=terms, uneven=uneven)

    def _even(self, position: Position, inputs: Inputs, terms: ChannelTerms) -> Run:
        plan = EpochPlan(
            inputs.num,
            terms["batch_size"],
            terms.get("drop_last", False),
            self.ranks.world_size,
            Remainder(self.options.remainder),
            position.delivered,
        )
        return Run(epoch=position.epoch, plan=plan, inputs=inputs, terms=terms)

    def _list_of(self, batches: int, first: int = 0) -> EpochPlan:
        """The arithmetic of a list of so many batches."""
        remainder = Remainder(self.options.remainder)
        return EpochPlan(batches, 1, False, self.ranks.world_size, remainder, first)


def _check(terms: ChannelTerms, inputs: Inputs) -> None:
    """ValueError for what a hub would refuse: better now than with the first batch."""
    EpochPlan(inputs.num, terms["batch_size"])
    feed = Feed(num_inputs=inputs.num, **cutting(terms))
    check_wishes(Register(request=0, backend=0, feed=feed, **wishes(terms)))
