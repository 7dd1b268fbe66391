"""What all loaders are: torch's `DataLoader` to look at, and a channel's reader within.

A loader knows a source, a spec, inputs, and options. Torch's own machinery is inert: nothing is
forked, nothing pickled, and the workers are a pool's that several loaders share. Nothing runs
before the first batch is asked for.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NoReturn, Self

import numpy as np
import torch
from torch.utils.data import DataLoader

from penstock.client.batch import Batch
from penstock.client.terms import ChannelTerms
from penstock.core.plan import EpochPlan, Position, Remainder
from penstock.loader import trouble
from penstock.loader.assembly import Assembly
from penstock.loader.hubs import Lease
from penstock.loader.inputs import Inputs
from penstock.loader.iteration import Iteration
from penstock.loader.maker import Maker, adhoc_seed
from penstock.loader.meter import LoaderStatistics, Meter, lost_workers, recoveries_of
from penstock.loader.options import Options
from penstock.loader.order import Drawn, draw, length
from penstock.loader.position import Course, State, digest_of
from penstock.loader.run import Run
from penstock.loader.sources import Source
from penstock.loader.supply import Supply
from penstock.sampling.spec import BuiltInSpec

log = logging.getLogger(__name__)

_numbers: Final = itertools.count(1)


class Loader(DataLoader[Any]):
    """Reads batches, epoch after epoch. Close it, leave its `with`, or just drop it.

    Subclasses say what `data` and their other arguments mean, and give it here as a source, a spec
    and inputs. What they were given they keep as attributes of the same names.
    """

    transform: Any
    transform_sampler_output: Any
    filter_per_worker: bool

    def __init__(
        self,
        source: Source,
        spec: BuiltInSpec,
        inputs: Inputs,
        options: Options,
        assembly: Assembly | None = None,
    ) -> None:
        self._options = options
        self._source = source
        self._spec = spec
        self._inputs = inputs
        self._assembly = Assembly(source, spec, inputs) if assembly is None else assembly
        self._ranks = options.ranks()
        self.seed = options.seed_for(self._ranks)
        self._init_torch(options)
        self._terms = self._checked_terms()
        self._maker: Maker | None = None
        self._next: Position | None = None  # where the next iterator begins, if not as usual
        self._digest: str | None = None  # of the order that a restored epoch must have
        self._run: Run | None = None
        self._owner = os.getpid()
        self._closed = False
        self._meter = Meter()
        self._supply = Supply(
            source.graph, spec, self._hub(), self._lease(), f"{self._who}-{next(_numbers)}"
        )
        if self._ranks.world_size > 1:
            log.info("%s takes the batches of rank %d of %d, as %s has it", self, *self._told())

    def _init_torch(self, options: Options) -> None:
        """Torch's attributes, as its own loader would have them; its machinery stays unused."""
        given = {"sampler": options.sampler, "batch_sampler": options.batch_sampler}
        if options.batch_sampler is None:
            given["batch_size"], given["drop_last"] = options.batch_size, options.drop_last
        elif options.batch_size not in (None, 1) or options.drop_last:
            given["batch_size"], given["drop_last"] = 2, options.drop_last  # torch complains of it
        # Torch's sampler of nothing refuses to be.
        shuffle = options.shuffle if self._inputs.num or options.sampler is not None else None
        DataLoader.__init__(
            self,
            range(self._inputs.num),  # type: ignore[arg-type]
            shuffle=shuffle,
            collate_fn=_nothing,
            generator=options.generator,
            timeout=options.timeout,
            **given,
        )
        del self.collate_fn  # ours is a method: torch's attribute would be a cycle
        for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory"):
            vars(self)[name] = getattr(options, name)
        for name in ("shuffle", "pin_memory_device", "in_order", "worker_init_fn"):
            vars(self)[name] = getattr(options, name)
        for name in ("rank", "world_size", "remainder", "on_error", "max_substitutes"):
            vars(self)[name] = getattr(options, name)
        for name in ("deadline", "max_attempts", "max_batch_bytes", "prefetch", "weight"):
            vars(self)[name] = getattr(options, name)
        vars(self)["num_workers"] = self._counted_workers()

    def _counted_workers(self) -> int | str:
        """What code that knows torch's loaders will look at: 0, or a number above."""
        given = self._options.num_workers
        if given is not None:
            return given
        return 0 if self._source.hub is None else int(getattr(self._source.hub, "num_workers", 1))

    def _hub(self) -> Any:
        return None if self._options.is_inline else self._source.hub

    def _lease(self) -> Lease | None:
        workers = self._options.num_workers
        if self._source.hub is not None or self._options.is_inline or workers is None:
            return None
        return Lease(self._source.graph, workers)

    def _told(self) -> tuple[int, int, str]:
        return self._ranks.rank, self._ranks.world_size, self._ranks.told_by

    # --- epochs ------------------------------------------------------------------------------

    def __iter__(self) -> Iteration:  # type: ignore[override]
        """The next epoch; after `load_state_dict`, the rest of the one that was saved.

        What is left of the epoch before is given up. An epoch of which no batch was asked for has
        not been used: it comes again.
        """
        self._check_usable()
        run = self._run
        if run is not None and not run.touched and self._next is None:
            run = run.again()
        else:
            run = self._begin(self._upcoming())
        self._run, self._next, self._digest = run, None, None
        return Iteration(self, run)

    def _get_iterator(self) -> Any:
        return iter(self)

    def __len__(self) -> int:
        """Batches of an epoch for this rank; every rank has as many."""
        return self._list_of(length(self._options, self._inputs.num)).batches_per_rank

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch is next. If that is one that was restored, it goes on where it was."""
        wanted = Position(epoch)
        if wanted.epoch != self._upcoming().epoch:
            self._next, self._digest = wanted, None

    def _upcoming(self) -> Position:
        """Where the next iterator begins."""
        run = self._run
        if self._next is not None or run is None:
            return self._next or Position()
        return Position(run.epoch + 1) if run.touched else run.position

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or will be next if none is."""
        return self.state().position.epoch if self._run is None else self._run.epoch

    def _begin(self, position: Position) -> Run:
        self._meter.begin()
        self._meter.recoveries += recoveries_of(self._supply.reader_statistics())
        run = self._run_from(position)
        self._supply.start(run)
        return run

    def _run_from(self, position: Position) -> Run:
        if not self._options.own_order:
            return self._even_run(position, self._inputs, self._terms)
        drawn = draw(self._options, self._inputs.num, self.seed, position.epoch)
        digest = digest_of(drawn.places)
        if self._digest is not None and digest != self._digest:
            raise ValueError(
                f"sampler gives epoch {position.epoch} another order than when the state was "
                "saved: let it draw from torch's default generator, which is set for each epoch, "
                "or have a `set_epoch` that its order follows from"
            )
        run = self._drawn_run(position, drawn)
        run.digest = digest
        return run

    def _drawn_run(self, position: Position, drawn: Drawn) -> Run:
        terms: ChannelTerms = {**self._terms, "shuffle": False}
        if drawn.is_even:
            if drawn.sizes is not None:
                terms = {**terms, "batch_size": drawn.batch_size, "drop_last": False}
            return self._even_run(position, self._inputs.at(drawn.places), terms)
        assert drawn.sizes is not None
        stops = np.cumsum(drawn.sizes)[:-1]
        uneven = [self._inputs.at(places) for places in np.split(drawn.places, stops)]
        plan = self._list_of(len(uneven), position.delivered)
        return Run(epoch=position.epoch, plan=plan, inputs=self._inputs, terms=terms, uneven=uneven)

    def _even_run(self, position: Position, inputs: Inputs, terms: ChannelTerms) -> Run:
        plan = EpochPlan(
            inputs.num,
            terms["batch_size"],
            terms.get("drop_last", False),
            self._ranks.world_size,
            Remainder(self._options.remainder),
            position.delivered,
        )
        return Run(epoch=position.epoch, plan=plan, inputs=inputs, terms=terms)

    def _list_of(self, batches: int, first: int = 0) -> EpochPlan:
        """The arithmetic of a list of so many batches."""
        remainder = Remainder(self._options.remainder)
        return EpochPlan(batches, 1, False, self._ranks.world_size, remainder, first)

    def _checked_terms(self) -> ChannelTerms:
        options = self._options
        terms: ChannelTerms = options.terms(self._ranks, self.seed)
        size = options.batch_size if options.batch_sampler is None else 1
        order = options.usual_order or False
        return {**terms, "batch_size": size, "drop_last": options.drop_last, "shuffle": order}

    # --- what an iteration asks for ----------------------------------------------------------

    def check_reads(self, run: Run) -> None:
        """Raises unless a run is the one that this loader reads."""
        self._check_usable()
        now = self._run
        if now is not run:
            went = "gone back to a state" if now is None else f"begun epoch {now.epoch} again"
            if now is not None and now.epoch != run.epoch:
                went = f"gone on to epoch {now.epoch}"
            raise trouble.superseded(self._who, run.epoch, went)

    def next_of(self, run: Run) -> Batch | None:
        """The next batch of a run; None at its end."""
        maker = self._made() if run.is_uneven else None
        return self._supply.next(run, maker, self.timeout or None)

    def finished(self, batch: Batch, inputs: Inputs) -> Any:
        """A batch as the user wants it. What goes wrong in their code names the batch."""
        try:
            if self.transform_sampler_output is None:
                with self._meter.at("transfer"):
                    data = self._assembly.data(batch, inputs)
                return self._transformed(data)
            with self._meter.at("transfer"):
                out = self._assembly.sampler_output(batch, inputs)
            return self.filter_fn(out)
        except StopIteration as error:  # which would end the user's loop, as if all were well
            trouble.name_batch(error, f"a transform of {self._who}, for a batch", batch)
            raise RuntimeError(f"a transform of {self._who} raised StopIteration") from error
        except Exception as error:
            trouble.name_batch(error, f"{self._who}, making tensors", batch)
            raise

    def _transformed(self, data: Any) -> Any:
        if self.transform is not None:
            with self._meter.at("transform"):
                data = self.transform(data)
        if self.pin_memory and torch.cuda.is_available():
            with self._meter.at("transfer"):
                data = data.pin_memory()
        return data

    # --- out of turn -------------------------------------------------------------------------

    def __call__(self, index: Any) -> Any:
        """A batch of the inputs at these places, sampled here and now; see docs/random.md."""
        out = self.collate_fn(index)
        return out if self.filter_per_worker else self.filter_fn(out)

    def collate_fn(self, index: Any) -> Any:
        """As `loader(index)`, but before `filter_fn`, unless `filter_per_worker`; as in PyG."""
        if self._closed:
            raise trouble.closed(self._who)
        inputs, maker = self._inputs.at(index), self._made()
        batch = maker.make(inputs, adhoc_seed(self.seed), maker.next_call(), 0)
        if self.filter_per_worker:
            return self.finished(batch, inputs)
        return self._assembly.sampler_output(batch, inputs)

    def filter_fn(self, out: Any) -> Any:
        """Joins the rows of a sampler's output, PyG's; then `transform`."""
        if self.transform_sampler_output is not None:
            with self._meter.at("transform"):
                out = self.transform_sampler_output(out)
        with self._meter.at("transfer"):
            data = self._assembly.join(out)
        return self._transformed(data)

    def _made(self) -> Maker:
        if self._maker is None:
            self._maker = Maker(self._source.graph, self._spec, self._inputs)
        return self._maker

    # --- position ----------------------------------------------------------------------------

    def state(self) -> State:
        """Where the loader stands: after the last batch that was delivered."""
        run = self._run
        if run is None or (self._next is not None and run.is_over):
            return State(self._next or Position(), self._course(), self._digest)
        position = run.position
        digest = run.digest if position.epoch == run.epoch and position.delivered else None
        return State(position, self._course(), digest)

    def state_dict(self) -> dict[str, Any]:
        """The position as plain data: small, JSON-able, and the same on every rank.

        Any number of workers or ranks can go on from it, with the next batch.
        """
        return self.state().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Has the next iterator go on from there; those there are have come to their end.

        `ValueError` if batches are cut or drawn otherwise here than where it was saved. Beside
        that, the same data and sampling are taken for granted.
        """
        given = self._options.seed is not None
        state = State.from_dict(state_dict).for_course(self._course(), seed_is_given=given)
        self.seed = state.course.seed
        self._terms = {**self._terms, "seed": self.seed}
        self._next, self._digest, self._run = state.position, state.digest, None

    def _course(self) -> Course:
        options, usual = self._options, self._options.usual_order
        order = "sampler" if options.own_order else "shuffled" if usual else "given"
        size = 0 if options.batch_sampler is not None else options.batch_size
        return Course(self._inputs.num, size, options.drop_last, order, self.seed)

    # --- seeing ------------------------------------------------------------------------------

    def statistics(self) -> LoaderStatistics:
        """A snapshot of what this loader has done, and its hub."""
        self._meter.tick()
        run, meter, hub = self._run, self._meter, self._supply.hub_statistics()
        seen = self._supply.reader_statistics()
        return LoaderStatistics(
            epoch=self.epoch,
            step=0 if run is None else run.step,
            steps=len(self) if run is None else run.plan.batches_per_rank,
            batches=meter.batches,
            inputs=meter.inputs,
            failed=meter.failed,
            substitutes=meter.substitutes,
            copied=meter.copied,
            bytes=meter.bytes,
            seconds=meter.seconds,
            batches_per_second=meter.batches / meter.seconds if meter.seconds else 0.0,
            inputs_per_second=meter.inputs / meter.seconds if meter.seconds else 0.0,
            time_to_first_batch=meter.first,
            sampling_cost=meter.cost,
            waits=meter.waits(hub, self._supply.name, os.getpid()),
            restarts_of_workers=lost_workers(hub),
            restarts_of_hub=meter.recoveries + recoveries_of(seen),
            num_workers=len(hub["pool"]["workers"]) if hub else 0,
            hub=hub,
        )

    @property
    def address(self) -> str | None:
        """Where other processes on this host can join the pool and the graph; starts it.

        `penstock.NeighborLoader(address, …)` over there. None if batches are made in this process.
        """
        self._check_usable()
        hub = self._supply.hub()
        return None if hub is None else hub.address

    def reweigh(self, weight: float) -> None:
        """Asks for another share of the workers, from now on."""
        self._check_usable()
        self._supply.reweigh(weight)
        self._terms = {**self._terms, "weight": weight}
        self.weight = weight

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Ends what runs for this loader; batches that were given stay valid. Idempotent."""
        if os.getpid() == self._owner:
            self._closed = True
            self._supply.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        trouble.refuse_pickling(self._who)

    def __repr__(self) -> str:
        return f"{self._who}()"

    @property
    def _who(self) -> str:
        return type(self).__name__

    def _check_usable(self) -> None:
        trouble.check_process(self._who, self._owner)
        if self._closed:
            raise trouble.closed(self._who)

    # --- PyG's, for workers that are not ours --------------------------------------------------

    def enable_multithreading(
        self, worker_threads: int | None = None
    ) -> AbstractContextManager[None]:
        """Nothing to enable: a worker samples with one thread, and there can be more workers."""
        return nullcontext()


def _nothing(_: Any) -> NoReturn:
    raise AssertionError("torch's own iterators are not used")
