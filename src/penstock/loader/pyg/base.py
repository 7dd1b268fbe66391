"""The base of all loaders: torch's `DataLoader` in appearance, a channel's reader inside.

A loader knows a source, a spec, inputs and options. Torch's own machinery is unused: nothing is
forked or pickled, and the workers belong to a pool that several loaders share. Nothing runs before
the first batch is asked for.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Self

from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData

from penstock.client.channel.batch import Batch
from penstock.client.sizes import parse_bytes
from penstock.core.plan import Position
from penstock.kernels.reference import fold
from penstock.loader import errors
from penstock.loader.device.features import DeviceFeatures
from penstock.loader.device.hot_rows import hot_nodes, presampled
from penstock.loader.device.transfer import applied, transfer_of
from penstock.loader.epoch.iteration import Iteration
from penstock.loader.epoch.position import LoaderState
from penstock.loader.epoch.ranks import tell_of_share, warn_of_same_inputs
from penstock.loader.epoch.run import Run
from penstock.loader.epoch.schedule import Schedule
from penstock.loader.pyg.collate import Collate, Deferral
from penstock.loader.pyg.graph_data import GraphData
from penstock.loader.pyg.mixins import WorkerMixin
from penstock.loader.pyg.options import LoaderOptions
from penstock.loader.pyg.stores import is_pair
from penstock.loader.pyg.template import is_of_nodes
from penstock.loader.pyg.torch_shims import Hint, InputIndices, never, sampler_over, unhooked
from penstock.loader.source.adhoc import AdhocBatches, adhoc_batches, adhoc_seed
from penstock.loader.source.batch_source import BatchSource
from penstock.loader.source.hubs import Lease
from penstock.loader.source.inputs import Inputs
from penstock.loader.source.remote_adhoc import RemoteAdhocBatches
from penstock.loader.source.sources import DataSource, no_workers
from penstock.loader.watch import watcher
from penstock.loader.watch.meter import LoaderStatistics, Meter, lost_workers
from penstock.loader.watch.watcher import Watching
from penstock.option_types import LoaderKeywords
from penstock.sampling.kinds import direction_of, kind_of
from penstock.sampling.spec import HGTSpec, LinkSpec, NeighborSpec, Spec

log = logging.getLogger(__name__)

_numbers: Final = itertools.count(1)
# Attributes that torch's own constructor sets from its arguments.
_TORCH_SETS: Final = (
    "batch_size",
    "sampler",
    "batch_sampler",
    "drop_last",
    "generator",
    "timeout",
    "multiprocessing_context",
    "seed",  # ours, and may be drawn
)
# Arguments that a loader looks up with every batch, so that they may be assigned; and one that has
# no effect, which Lightning assigns (`seed_everything(…, workers=True)`).
_LOOKED_UP: Final = {"transform", "transform_sampler_output", "filter_per_worker", "timeout"}
_UNUSED: Final = {"worker_init_fn"}
# Inputs of a batch, where only a batch sampler knows how many it has.
_USUAL_SIZE: Final = 256


class Loader(WorkerMixin, DataLoader[Any]):
    """Reads batches, epoch after epoch. Close it, leave its `with`, or just drop it.

    Subclasses say what `data` and their other arguments mean, and pass them here as a source, a
    spec and inputs. They keep what they were given as attributes of the same names.

    Users' subclasses may have a `filter_fn` or a `collate_fn` of their own, as PyG's. Both are
    called in this process: with a `filter_fn` workers sample, and rows are joined here; with a
    `collate_fn` there is nothing left for workers to do.
    """

    transform: Any = None
    transform_sampler_output: Any = None
    filter_per_worker: bool = True
    # Names of arguments that have done their work once a loader is made.
    _used_up = (
        frozenset((*LoaderKeywords.__annotations__, "node_sampler", "link_sampler"))
        - _LOOKED_UP
        - _UNUSED
    )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("penstock."):  # a user's arguments are the user's
            parameters = inspect.signature(cls.__init__).parameters.values()
            names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
            cls._used_up |= names - _LOOKED_UP - {"self"}

    def __init__(
        self,
        source: DataSource,
        spec: Spec,
        inputs: Inputs,
        options: LoaderOptions,
        collate: Collate | None = None,
    ) -> None:
        for name in ("transform", "transform_sampler_output"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise TypeError(f"{name} is {given!r}; expected a function of a batch, or None")
        self._joins_here = isinstance(spec, NeighborSpec | LinkSpec | HGTSpec)
        if self._filters():
            self._check_filters()
            self._refuse_features(options)
            spec = kind_of(spec).bare(spec)  # rows are joined here, after the user's transform
        elif options.keeps_features:
            spec = kind_of(spec).bare(spec, edges=False)  # they are taken on the GPU
        if self._overrides("collate_fn") and not options.is_inline:
            warnings.warn(
                f"collate_fn of {self._who} is called in this process, with the positions of each "
                "batch: workers make no batches for it (num_workers=0 says so)",
                stacklevel=3,
            )
        self._options = options
        self._source = source
        self._spec = spec
        self._inputs = inputs
        self._collate = Collate(source, spec, inputs) if collate is None else collate
        self._init_torch(options)
        self._schedule = Schedule.of(options, inputs)
        self._hint = Hint(self.sampler) if self._schedule.order is None else None
        self.seed = self._schedule.seed  # given, or drawn
        self._maker: AdhocBatches | RemoteAdhocBatches | None = None
        self._turn: tuple[int, int, int] | None = None  # seed, epoch, index: of `collate_fn`
        self._next: Position | None = None  # start of the next iterator, if not the usual one
        self._digest: str | None = None  # that the order of a restored epoch must have
        self._run: Run | None = None  # the run that was read last
        self._states = 0  # number of states that were restored
        self._owner = os.getpid()
        self._closed = False
        self._meter = Meter()
        self._transfer = transfer_of(
            options.torch_device,
            pin_memory=options.pin_memory,
            ahead_bytes=parse_bytes(options.device_prefetch, "device_prefetch"),
            features=self._device_features(),
        )
        if options.pin_memory and self._transfer is None:
            log.info("%s: pin_memory has no effect, since there is no GPU", self)
        self._batches_from = BatchSource(
            source.graph, spec, self._hub(), self._lease(), f"{self._who}-{next(_numbers)}"
        )
        ranks = self._schedule.ranks
        if ranks.is_found and self._schedule.is_in_order and options.sampler is None:
            tell_of_share(self._batches_from.name, ranks)
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; ValueError if it is an argument that was used already.

        It would have no effect: workers have the graph and how to sample it.
        """
        if "_is_made" in self.__dict__ and not name.startswith("_"):
            if name in self._used_up and value is not vars(self).get(name):
                raise ValueError(errors.used_up(self._who, name, value))
            if name in ("filter_fn", "transform_sampler_output") and value is not None:
                self._check_filters()
        super().__setattr__(name, value)

    def _refuse_features(self, options: LoaderOptions) -> None:
        if options.keeps_features:
            raise ValueError(
                f"{self._who} has a filter_fn or transform_sampler_output, which sees batches "
                "before they are on the GPU, so features and feature_cache cannot keep rows there: "
                "leave out one or the other"
            )

    def _device_features(self) -> DeviceFeatures | None:
        """Return what keeps rows of nodes on the GPU, if the user wants that."""
        options, graph = self._options, self._source.graph
        if not options.keeps_features or self._filters():
            return None
        if graph.part is not None:
            raise ValueError(
                f"this is {graph.part}: its rows cannot be kept on the GPU (features, "
                "feature_cache) by themselves; read from the store of all parts"
            )
        rows = filter(is_of_nodes, self._source.template.rows)
        columns = [(str(row.owner), row.name) for row in rows]
        return DeviceFeatures(graph, columns, options.feature_bytes, self._hot_nodes)

    def _hot_nodes(self, row_bytes: Mapping[str, int], budget: int) -> Mapping[str, Any]:
        """Return the nodes whose rows are worth a budget of bytes, by type."""
        source, inputs = self._source, self._inputs
        bare = kind_of(self._spec).bare(self._spec)
        batches = presampled(
            adhoc_batches(source, bare, inputs),
            inputs,
            _USUAL_SIZE if self._options.batch_sampler is not None else self._options.batch_size,
            self.seed,
            shuffle=not self._schedule.is_in_order,
        )
        side = direction_of(bare) or "in"
        return hot_nodes(source.graph, side, row_bytes, budget, batches)

    def _overrides(self, name: str) -> bool:
        """Return whether a user has another method of this name, in a subclass or an attribute."""
        return name in vars(self) or getattr(type(self), name) is not getattr(Loader, name)

    def _filters(self) -> bool:
        """Return whether the user's code is to see what a sampler gives, before rows are joined."""
        return self.transform_sampler_output is not None or self._overrides("filter_fn")

    def _check_filters(self) -> None:
        """Raise TypeError if batches have more than fits into what one of PyG's samplers gives."""
        if not self._joins_here:
            raise TypeError(
                f"{self._who} has no filter_fn and no transform_sampler_output to change: its "
                "batches are not made of what a sampler of PyG gives. Use transform"
            )

    @property
    def data(self) -> Any:
        """What is sampled: as given, if it is PyG's; else the graph, read as PyG reads its data.

        So `model.inference(loader)` finds `loader.data.num_nodes` and `loader.data.x`.
        """
        try:
            given = vars(self)["data"]
        except KeyError:
            raise AttributeError(f"{self._who} has no data") from None
        if isinstance(given, Data | HeteroData | GraphData) or is_pair(given):
            return given
        if "_graph_data" not in vars(self):
            self._graph_data = GraphData(given, self._source.graph)
        return self._graph_data

    @data.setter
    def data(self, given: Any) -> None:
        vars(self)["data"] = given  # under its name, since loaders are made again of what is there

    def _init_torch(self, options: LoaderOptions) -> None:
        """Set torch's attributes as its own loader would; torch's machinery stays unused."""
        places = InputIndices(self._inputs.num, options.ours())
        given = {"sampler": options.sampler, "batch_sampler": options.batch_sampler}
        if options.sampler is None and options.batch_sampler is None:
            given["sampler"] = sampler_over(places, options.shuffle, options.generator)
        if options.batch_sampler is None:
            given["batch_size"], given["drop_last"] = options.batch_size, options.drop_last
        elif options.batch_size not in (None, 1) or options.drop_last:
            # Torch raises its own error for this combination.
            given["batch_size"], given["drop_last"] = 2, options.drop_last
        shuffle = options.shuffle if given["sampler"] is options.sampler else None
        unhooked(self, DataLoader.__init__)(
            self,
            places,
            shuffle=shuffle,
            collate_fn=never,
            generator=options.generator,
            timeout=options.timeout,
            **given,
        )
        del self.collate_fn  # ours is a method; torch's attribute would make a cycle
        for name, value in options.keywords().items():
            if name not in _TORCH_SETS:
                vars(self)[name] = value
        vars(self)["num_workers"] = self._counted_workers()
        # Set last, because torch refuses it while `num_workers` is 0.
        self.multiprocessing_context = options.multiprocessing_context

    def _counted_workers(self) -> int:
        """Return the `num_workers` that code written for torch's loaders expects: 0, or more."""
        asked = self._options.workers
        if asked is not None:
            return asked
        return 0 if self._source.hub is None else int(getattr(self._source.hub, "num_workers", 1))

    def _hub(self) -> Any:
        return None if self._options.is_inline else self._source.hub

    def _lease(self) -> Lease | None:
        workers = self._options.workers
        if self._source.hub is not None or self._options.is_inline or workers is None:
            return None
        graph = self._source.graph
        return Lease(graph.here(no_workers(graph)), workers)

    # --- epochs ------------------------------------------------------------------------------

    def __iter__(self) -> Iteration:  # type: ignore[override]
        """Start the next epoch; after `load_state_dict`, the rest of the one that was saved.

        An epoch of which no batch was asked for counts as unused and comes again. What is left of
        the previous epoch is given up. If its iterator is asked again, it continues with a channel
        of its own.
        """
        self._check_usable()
        if self._schedule.ranks.process_rank == 0 and watcher.is_wanted():
            self.watch()
        if self._run is None and self._schedule.is_unshared:
            warn_of_same_inputs(self._batches_from.name, self._schedule.ranks)
        self._take_hint()
        run = self._run
        if run is None or run.touched or self._next is not None:
            self._meter.begin()
            run = self._schedule.run_from(self._upcoming(), self._digest)
            run.by_user = self._overrides("collate_fn")
            self._batches_from.start(run)
            self._run, self._next, self._digest = run, None, None
        return Iteration(self, run, self._states)

    def _get_iterator(self) -> Any:
        return iter(self)

    def __len__(self) -> int:
        """Return the number of batches of an epoch for this rank; it is the same for all ranks."""
        return len(self._schedule)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch. If a restored state is in that epoch, it continues from the state.

        Args:
            epoch: Its number.
        """
        wanted = Position(epoch)
        if wanted.epoch != self._upcoming().epoch:
            self._next, self._digest = wanted, None

    def _take_hint(self) -> bool:
        """Use the epoch that the sampler was told; return whether it differs from the next one."""
        told = None if self._hint is None else self._hint.news()
        if told is None or told == self._upcoming().epoch:
            return False
        self.set_epoch(told)
        return True

    def _upcoming(self) -> Position:
        """Return the position at which the next iterator begins."""
        run = self._run
        if self._next is not None or run is None:
            return self._next or Position()
        return Position(run.epoch + 1) if run.touched else run.position

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or the next one if none is."""
        run = self._run
        return self._state().position.epoch if run is None else run.epoch

    # --- what an iteration asks for ----------------------------------------------------------

    def _begin(self, run: Run, states: int) -> Run:
        """Return the run that an iterator reads when it is asked for the first time.

        That is the run it was made with, unless the loader has moved on since: to another epoch, to
        a restored state, or because the epoch was chosen only after the iterator was made.
        """
        self._check_usable()
        stale = states != self._states or run.touched or not self._batches_from.is_for(run)
        return iter(self)._run if self._take_hint() or stale else run

    def _go_on(self, run: Run, states: int) -> None:
        """Note that this run's iterator reads now: its position is the loader's position."""
        self._check_usable()
        if states != self._states:
            raise errors.superseded(self._who, run.epoch)
        self._run = run

    def _prepare(self, batch: Batch, run: Run) -> Any:
        """Turn a batch into what the user wants, and begin to move it."""
        try:
            transfer = self._transfer
            if run.by_user:
                return self._collated(run, batch.index)
            if transfer is None:
                return self._complete(batch, run.inputs_of(batch))
            with self._meter.at("transfer"):
                batch = transfer.receive(batch)
            data = self._joined(batch, run.inputs_of(batch), transfer)
            if not transfer.transforms_last:
                data = self._transformed_once(data)
            with self._meter.at("transfer"):
                return transfer.begin(data, batch)
        except Exception as error:
            self._name(error, batch)
            raise

    def _deliver(self, begun: Any, batch: Batch, run: Run) -> Any:
        """Return what `_prepare` has begun, where the user wants it."""
        transfer = self._transfer
        if transfer is None or run.by_user:
            return begun
        try:
            with self._meter.at("transfer"):
                data = transfer.finish(begun)
            return self._transformed_once(data) if transfer.transforms_last else data
        except Exception as error:
            self._name(error, batch)
            raise

    def _name(self, error: Exception, batch: Batch) -> None:
        """Add the batch's name to an error, which may be of the user's code."""
        if isinstance(error, StopIteration):  # it would end the user's loop as if all were well
            wrong = RuntimeError(f"a transform of {self._who} raised StopIteration")
            errors.name_batch(wrong, self._who, batch)
            raise wrong from error
        errors.name_batch(error, self._who, batch)

    def _collated(self, run: Run, index: int) -> Any:
        """Let the user's own `collate_fn` make a batch of the epoch."""
        self._turn = run.key_of(index)
        try:
            return self(run.places_of(index))
        finally:
            self._turn = None

    def _joined(self, batch: Batch, inputs: Inputs, deferral: Deferral | None = None) -> Any:
        """Return a batch with its rows, as PyG's loaders have it before any transform.

        Args:
            batch: The batch.
            inputs: What it was sampled from.
            deferral: Says which rows are put in, or decoded, when the batch is moved.
        """
        if not self._filters():
            with self._meter.at("transfer"):
                return self._collate.data(batch, inputs, deferral)
        with self._meter.at("transfer"):
            out = self._collate.sampler_output(batch, inputs)
        return self.filter_fn(out) if self._overrides("filter_fn") else self._filtered(out)

    def _filtered(self, out: Any) -> Any:
        """Return a sampler's output with its rows, before any transform."""
        if self.transform_sampler_output is not None:
            with self._meter.at("transform"):
                out = self.transform_sampler_output(out)
        with self._meter.at("transfer"):
            return self._collate.join(out)

    def _complete(self, batch: Batch, inputs: Inputs) -> Any:
        """Return a batch as the user wants it, where the user wants it, now."""
        return self._transformed_once(self._arrived(self._joined(batch, inputs)))

    def _arrived(self, data: Any) -> Any:
        """Return what was made out of turn on the device that the user asked for."""
        device = self._options.torch_device
        return data if device is None else applied(data, lambda tensor: tensor.to(device))

    def _transformed_once(self, data: Any) -> Any:
        """Call the user's transform, unless the user's `filter_fn` has seen to that."""
        return data if self._overrides("filter_fn") else self._transformed(data)

    def _transformed(self, data: Any) -> Any:
        if self.transform is None:
            return data
        with self._meter.at("transform"):
            return self.transform(data)

    # --- out of turn -------------------------------------------------------------------------

    def __call__(self, index: Any) -> Any:
        """Sample a batch of the inputs at these positions in this process; see docs/random.md."""
        out = self.collate_fn(index)
        return out if self.filter_per_worker else self._arrived(self.filter_fn(out))

    def collate_fn(self, index: Any) -> Any:
        """Do as `loader(index)`, but without `filter_fn` unless `filter_per_worker`; as in PyG.

        Args:
            index: Positions among the inputs.
        """
        if self._closed:
            raise errors.closed(self._who)
        inputs, maker = self._inputs.at(index), self._made()
        batch = maker.make(inputs, *self._key_for(maker))
        if self.filter_per_worker:
            return self._complete(batch, inputs)
        return self._collate.sampler_output(batch, inputs)

    def _key_for(self, maker: AdhocBatches | RemoteAdhocBatches) -> tuple[int, int, int]:
        """Return seed, epoch and index of a batch that is made by `collate_fn`.

        In an epoch that the user's `collate_fn` makes, they are those of the batch that is due, so
        that it is the one that a channel would give. Further calls for it draw anew.
        """
        if self._turn is None:
            return adhoc_seed(self.seed), maker.next_call(), 0
        seed, epoch, index = self._turn
        self._turn = fold(seed, 1), epoch, index
        if isinstance(maker, RemoteAdhocBatches):  # which makes batch 0 of an epoch only
            return fold(seed, index), epoch, 0
        return seed, epoch, index

    def filter_fn(self, out: Any) -> Any:
        """Join the rows to a sampler's output, as in PyG; then apply `transform`.

        Args:
            out: What a sampler gives, as PyG's `SamplerOutput`.
        """
        return self._transformed(self._filtered(out))

    def _made(self) -> AdhocBatches | RemoteAdhocBatches:
        if self._maker is None:
            self._maker = adhoc_batches(self._source, self._spec, self._inputs)
        return self._maker

    # --- position ----------------------------------------------------------------------------

    def _state(self) -> LoaderState:
        """Return the loader's state after the last delivered batch."""
        run = self._run
        if run is None or (self._next is not None and run.is_over):
            position, digest = self._next or Position(), self._digest
        else:
            position = run.position
            digest = run.digest if position.epoch == run.epoch and position.delivered else None
        schedule = self._schedule
        return LoaderState(position, schedule.course, digest, schedule.ranks.process_rank)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain data: small and JSON-able.

        Training can go on from it with the next batch, with any number of workers. Where ranks
        share one list of batches (a split by name, or `rank` and `world_size` given), it is the
        same on every rank, and any number of ranks can go on. Where each rank has ids of its own,
        it is that rank's state, for as many ranks as saved it.
        """
        return self._state().to_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iterator start from a saved state; existing iterators end.

        The data and the sampling must be the same; that is not checked.

        Args:
            state_dict: What `state_dict` returned, here or on any rank.

        Raises:
            ValueError: batches are cut or drawn differently here than where the state was saved, or
                the ids were one rank's own, and the number of ranks is another.
        """
        given = self._options.seed is not None
        state = LoaderState.from_dict(state_dict).for_course(
            self._schedule.course, seed_is_given=given, rank=self._schedule.ranks.process_rank
        )
        vars(self)["seed"] = state.course.seed
        self._schedule = self._schedule.seeded(self.seed)
        self._next, self._digest, self._run = state.position, state.digest, None
        self._states += 1

    # --- seeing ------------------------------------------------------------------------------

    def statistics(self) -> LoaderStatistics:
        """Return a snapshot of what this loader and its hub have done. Any thread may call it."""
        run, meter, hub = self._run, self._meter, self._batches_from.hub_statistics()
        seconds = meter.elapsed()
        return LoaderStatistics(
            epoch=self.epoch,
            step=0 if run is None else run.step,
            steps=len(self) if run is None else run.plan.batches_per_rank,
            batches=meter.batches,
            inputs=meter.inputs,
            failed=meter.failed,
            substitutes=meter.substitutes,
            retries=meter.retries,
            copied=meter.copied,
            bytes=meter.bytes,
            seconds=seconds,
            batches_per_second=meter.batches / seconds if seconds else 0.0,
            inputs_per_second=meter.inputs / seconds if seconds else 0.0,
            time_to_first_batch=meter.first,
            sampling_cost=meter.cost,
            waits=meter.waits(hub, *self._batches_from.known_as),
            restarts_of_workers=lost_workers(hub),
            restarts_of_hub=self._batches_from.recoveries,
            num_workers=len(hub["pool"]["workers"]) if hub else 0,
            device=None if self._transfer is None else self._transfer.statistics(),
            hub=hub,
        )

    def watch(self) -> Watching:
        """Show the statistics while this loader is read: live in a terminal, else as lines.

        It ends when its `with` is left, `stop()` is called, or the loader ends. PENSTOCK_WATCH=1
        does this for all loaders of rank 0.
        """
        self._check_usable()
        return watcher.begin(self, self._batches_from.name, self._meter.batches)

    @property
    def address(self) -> str | None:
        """Where other processes on this host can join the pool and the graph; starts the pool.

        They call `penstock.NeighborLoader(address, …)`. None if batches are made in this process.
        """
        self._check_usable()
        hub = self._batches_from.hub()
        return None if hub is None else hub.address

    def reweigh(self, weight: float) -> None:
        """Ask for another share of the workers, from now on.

        Args:
            weight: The share, against the weights of other channels.
        """
        self._check_usable()
        self._schedule = self._schedule.reweighed(weight)
        self._batches_from.reweigh(weight)
        vars(self)["weight"] = weight

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """End what runs for this loader; delivered batches stay valid. Idempotent."""
        if os.getpid() == self._owner:
            self._closed = True
            watcher.end(self._batches_from.name)
            self._batches_from.close()
            if self._transfer is not None:
                self._transfer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: where they are unpickled, a loader is made anew.

        So a loader can be given to processes that are spawned. It starts with the first epoch, and
        has a pool of its own there.
        """
        _, *parameters = inspect.signature(type(self).__init__).parameters.values()
        names = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
        if unknown := [name for name in names if name not in vars(self)]:
            errors.refuse_pickling(self._who, unknown)  # of a subclass
        given = {name: vars(self)[name] for name in names}
        options = {} if len(names) == len(parameters) else self._options.keywords()
        return partial(type(self), **(options | given)), ()

    def __repr__(self) -> str:
        return f"{self._who}()"

    @property
    def _who(self) -> str:
        return type(self).__name__

    def _check_usable(self) -> None:
        errors.check_process(self._who, self._owner)
        if self._closed:
            raise errors.closed(self._who)
