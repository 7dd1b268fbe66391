"""All that a process which samples knows: the graph, how to sample, for whom, into which memory.

Used by workers, by inline loaders and by `penstock replay` alike, so that a batch is the same
whoever makes it. A station belongs to one thread. It knows neither sockets nor messages, nor which
process it is in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.layout import layout
from penstock.graph.schema import Arrays
from penstock.kernels.arrays import Array, Ids
from penstock.sampling import custom
from penstock.sampling.bounds import Sizes
from penstock.sampling.collate import NeighborBatches, Outgrown, Request
from penstock.sampling.inputs import check_feed, positions_of, seeds_at
from penstock.sampling.names import qualified
from penstock.sampling.shape import BatchShape
from penstock.sampling.spec import CustomSpec, Feed, NeighborSpec, Spec
from penstock.wire.frames import BatchWriter, SlotTooSmall
from penstock.wire.messages import ArrayLayout

Bytes = npt.NDArray[np.uint8]
Reached = Callable[[str], object]

# A slot is address space until it is touched, but not even of that there is any amount.
LARGEST_SLOT: Final = 1 << 30
# Nobody knows how much a user's sampler returns.
CUSTOM_SLOT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that lies in memory: where its arrays are, how far it reaches, what is no array."""

    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any]


class _Backend(Protocol):
    """A way of sampling."""

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        """Makes a batch in `memory`; `SlotTooSmall` says how much it needs."""


@dataclass(frozen=True, slots=True)
class _Channel:
    backend: int
    feed: Feed
    ids: Array | None


class Station:
    """Makes batches. `reached(stage)` is called on the way through each, for tests of faults."""

    def __init__(
        self,
        graph: Graph,
        search_path: Sequence[str] = (),
        reached: Reached = lambda stage: None,
    ) -> None:
        self.graph = graph
        self._search_path = tuple(search_path)
        self._reached = reached
        self._backends: dict[int, _Backend] = {}
        self._channels: dict[int, _Channel] = {}
        self._samplers: dict[bytes, custom.Sampler] = {}

    def supplement(self, arrays: Arrays) -> None:
        """More arrays of the same graph, made since (out-edges); those that are here stay."""
        whole = {**arrays, **self.graph.arrays}
        self.graph = Graph(self.graph.schema, whole, self.graph.handle().version)

    def open_backend(self, number: int, spec: Spec) -> None:
        """Learns a way of sampling; ValueError if it makes no sense for this graph.

        A user's sampler is loaded with its first batch, or before by `load_sampler`: loading runs
        the user's code, and a batch can tell what came of it.
        """
        match spec:
            case NeighborSpec():
                self._backends[number] = _Neighbors(NeighborBatches(self.graph, spec))
            case CustomSpec():
                self._backends[number] = _Custom(self.graph, lambda: self.load_sampler(spec))

    def close_backend(self, number: int) -> None:
        """Forgets it; unknown ones too."""
        self._backends.pop(number, None)

    def open_channel(self, number: int, backend: int, feed: Feed, ids: Array | None = None) -> None:
        """Learns where a channel's batches come from; `ids` are the inputs, if the feed has any."""
        check_feed(feed, self.graph, ids)
        self._channels[number] = _Channel(backend, feed, ids)

    def close_channel(self, number: int) -> None:
        """Forgets it; unknown ones too."""
        self._channels.pop(number, None)

    def load_sampler(self, spec: CustomSpec) -> custom.Sampler:
        """The user's sampler, made when first asked for; `SamplingError` shows what went wrong."""
        key = msgspec.msgpack.encode(spec, order="deterministic")
        if key not in self._samplers:
            search(self._search_path)
            self._samplers[key] = custom.load(spec, self.graph)
        return self._samplers[key]

    def seeds(self, channel: int, epoch: int, index: int) -> Ids:
        """The nodes that batch `index` of an epoch begins with."""
        known = self._channel(channel)
        return seeds_at(positions_of(known.feed, epoch, index), known.ids)

    def sample(
        self,
        channel: int,
        epoch: int,
        index: int,
        memory: Bytes,
        *,
        seeds: Ids | None = None,
    ) -> Written:
        """Makes batch `index` of an epoch in `memory`.

        `SlotTooSmall` says how much it needs: with so much it can be asked for again, and what
        could be kept of the first attempt has been. `seeds` stand in for those of the inputs,
        for who has no longer got these.
        """
        known = self._channel(channel)
        backend = self._backends.get(known.backend)
        if backend is None:
            raise ValueError(f"backend {known.backend} is not open here")
        feed, positions = known.feed, positions_of(known.feed, epoch, index)
        if seeds is None:
            seeds = seeds_at(positions, known.ids)
        node_type = feed.node_type if feed.node_type is not None else ""
        request = Request(feed.seed, epoch, index, seeds, positions, node_type)
        self._reached("sampling")
        return backend.write(request, memory, self._reached)

    def _channel(self, number: int) -> _Channel:
        if number not in self._channels:
            raise ValueError(f"channel {number} is not open here")
        return self._channels[number]


_Known = TypeVar("_Known")


class _Awaited(Generic[_Known]):
    """What is known of a batch that did not fit: most likely it is next, with more memory."""

    def __init__(self) -> None:
        self._kept: tuple[Request, _Known] | None = None

    def keep(self, request: Request, known: _Known) -> None:
        self._kept = request, known

    def take(self, request: Request) -> _Known | None:
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and request.is_same(kept[0]) else None


class _Neighbors:
    """k-hop neighbourhoods with their attributes."""

    def __init__(self, batches: NeighborBatches) -> None:
        self._batches = batches
        self._awaited: _Awaited[Sizes] = _Awaited()

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        sizes = self._sizes(request, memory.nbytes)
        try:
            return self._write(request, sizes, memory, reached)
        except Outgrown as outgrown:
            sizes = outgrown.sizes
        needed = self._batches.shape.nbytes(sizes, len(request.seeds))
        if needed > memory.nbytes:
            self._awaited.keep(request, sizes)
            raise SlotTooSmall(needed, memory.nbytes)
        return self._write(request, sizes, memory, reached)

    def _sizes(self, request: Request, room: int) -> Sizes:
        awaited, seeds = self._awaited.take(request), len(request.seeds)
        if awaited is not None and self._batches.shape.nbytes(awaited, seeds) <= room:
            return awaited
        return self._batches.sizes_for(room, seeds, request.node_type)

    def _write(self, request: Request, sizes: Sizes, memory: Bytes, reached: Reached) -> Written:
        with BatchWriter(memory) as writer:
            facts = self._batches.write(request, sizes, writer, reached)
            return Written(writer.commit(), writer.nbytes, facts)


class _Custom:
    """A sampler of the user's own."""

    def __init__(self, graph: Graph, load: Callable[[], custom.Sampler]) -> None:
        self._graph = graph
        self._load = load
        self._awaited: _Awaited[dict[str, Array]] = _Awaited()

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        arrays = self._arrays(request)
        needed = layout((array.dtype, array.shape) for array in arrays.values()).nbytes
        if needed > memory.nbytes:
            self._awaited.keep(request, arrays)
            raise SlotTooSmall(needed, memory.nbytes)
        reached("writing")
        with BatchWriter(memory) as writer:
            for name, array in arrays.items():
                writer.array(name, array.dtype, array.shape)[...] = array
            return Written(writer.commit(), writer.nbytes, self._facts(request))

    def _arrays(self, request: Request) -> dict[str, Array]:
        awaited = self._awaited.take(request)
        if awaited is not None:
            return awaited
        sampler, seeds = self._load(), request.seeds.copy()  # the user may do anything to it
        result = custom.called(
            f"sampling batch {request.index} of epoch {request.epoch}",
            lambda: sampler.sample(
                seeds, seed=request.seed, epoch=request.epoch, index=request.index
            ),
        )
        name = qualified(request.node_type, "input_id")
        return {name: request.positions, **custom.checked(result, self._graph)}

    def _facts(self, request: Request) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_size": len(request.seeds)}
        return facts | ({"input_type": request.node_type} if self._graph.is_hetero else {})


def slot_bytes_for(spec: Spec, graph: Graph, feed: Feed) -> int:
    """Bytes that will do for any batch, or for nearly any: not more than `LARGEST_SLOT`.

    Looks at sizes only.
    """
    if isinstance(spec, CustomSpec):
        return CUSTOM_SLOT
    seeds = min(feed.batch_size, feed.num_inputs)
    shape = BatchShape(graph, spec)
    return min(shape.nbytes(shape.bound(seeds, feed.node_type or ""), seeds), LARGEST_SLOT)


def search(folders: Sequence[str]) -> None:
    """Looks for modules in these folders first, in this order, as the user's own process does."""
    found = [folder for folder in folders if folder]
    sys.path[:] = [*found, *(folder for folder in sys.path if folder not in found)]
