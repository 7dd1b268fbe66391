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
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.collate import NeighborBatches, Outgrown
from penstock.sampling.inputs import ChannelInputs, check_feed, check_kind, request_of, type_of
from penstock.sampling.kinds import batches_of, likely_bytes
from penstock.sampling.names import qualified
from penstock.sampling.request import Request
from penstock.sampling.seeds import Seeds
from penstock.sampling.spec import BuiltInSpec, CustomSpec, Feed, Spec
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

    @property
    def spec(self) -> Spec: ...
    @property
    def awaited(self) -> _Awaited[Any]: ...

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        """Makes a batch in `memory`; `SlotTooSmall` says how much it needs."""


@dataclass(frozen=True, slots=True)
class _Channel:
    backend: int
    feed: Feed
    given: ChannelInputs


class BatchMaker:
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
        if isinstance(spec, CustomSpec):
            self._backends[number] = _Custom(self.graph, spec, lambda: self.load_sampler(spec))
        else:
            self._backends[number] = _built_in(spec, self.graph)

    def close_backend(self, number: int) -> None:
        """Forgets it; unknown ones too."""
        self._backends.pop(number, None)

    def open_channel(
        self, number: int, backend: int, feed: Feed, given: ChannelInputs | None = None
    ) -> None:
        """Learns where a channel's batches come from; `given` is what the feed speaks of."""
        given = ChannelInputs() if given is None else given
        check_feed(feed, self.graph, given)
        if (known := self._backends.get(backend)) is not None:
            check_kind(known.spec, feed, self.graph, given)
        self._channels[number] = _Channel(backend, feed, given)

    def close_channel(self, number: int) -> None:
        """Forgets it, and what was kept of its inputs; unknown ones too."""
        known = self._channels.pop(number, None)
        if known is not None and known.backend in self._backends:
            self._backends[known.backend].awaited.drop()

    def load_sampler(self, spec: CustomSpec) -> custom.Sampler:
        """The user's sampler, made when first asked for; `SamplingError` shows what went wrong."""
        key = msgspec.msgpack.encode(spec, order="deterministic")
        if key not in self._samplers:
            search(self._search_path)
            self._samplers[key] = custom.load(spec, self.graph)
        return self._samplers[key]

    def seeds(self, channel: int, epoch: int, index: int) -> Ids:
        """The inputs of batch `index` of an epoch: nodes, or edges [2, inputs]."""
        known = self._channel(channel)
        return request_of(known.feed, known.given, epoch, index).seeds

    def sample(
        self,
        channel: int,
        epoch: int,
        index: int,
        memory: Bytes,
    ) -> Written:
        """Makes batch `index` of an epoch in `memory`.

        `SlotTooSmall` says how much it needs: with so much it can be asked for again, and what
        could be kept of the first attempt has been.
        """
        known = self._channel(channel)
        return self.make(known.backend, request_of(known.feed, known.given, epoch, index), memory)

    def make(self, backend: int, request: Request, memory: Bytes) -> Written:
        """Makes any batch, for who has its inputs from elsewhere."""
        if backend not in self._backends:
            raise ValueError(f"backend {backend} is not open here")
        self._reached("sampling")
        return self._backends[backend].write(request, memory, self._reached)

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

    def drop(self) -> None:
        self._kept = None

    def take(self, request: Request) -> _Known | None:
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and request.is_same(kept[0]) else None


def _built_in(spec: BuiltInSpec, graph: Graph) -> _Backend:
    batches = batches_of(spec, graph)
    if isinstance(batches, NeighborBatches):
        return _Neighbors(spec, batches)
    return _Cuts(spec, batches)


class _Neighbors:
    """k-hop neighbourhoods with their attributes, sampled straight to where they will be read."""

    def __init__(self, spec: BuiltInSpec, batches: NeighborBatches) -> None:
        self.spec = spec
        self._batches = batches
        self.awaited: _Awaited[Sizes] = _Awaited()

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        start = self._batches.start(request)
        sizes = self._sizes(request, start, memory.nbytes)
        try:
            return self._write(request, start, sizes, memory, reached)
        except Outgrown as outgrown:
            sizes = outgrown.sizes
        needed = self._batches.nbytes(sizes, start)
        if needed > memory.nbytes:
            self.awaited.keep(request, sizes)
            raise SlotTooSmall(needed, memory.nbytes)
        return self._write(request, start, sizes, memory, reached)

    def _sizes(self, request: Request, start: Seeds, room: int) -> Sizes:
        awaited = self.awaited.take(request)
        if awaited is not None and self._batches.nbytes(awaited, start) <= room:
            return awaited
        return self._batches.sizes_for(room, start)

    def _write(
        self, request: Request, start: Seeds, sizes: Sizes, memory: Bytes, reached: Reached
    ) -> Written:
        with BatchWriter(memory) as writer:
            facts = self._batches.write(request, start, sizes, writer, reached)
            return Written(writer.commit(), writer.nbytes, facts)


class _Cuts:
    """Batches that are sampled first and written then."""

    def __init__(self, spec: BuiltInSpec, batches: BufferedBatches) -> None:
        self.spec = spec
        self._batches = batches
        self.awaited: _Awaited[Sampled] = _Awaited()

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        cut = self.awaited.take(request) or self._batches.cut(request)
        needed = self._batches.nbytes(cut)
        if needed > memory.nbytes:
            self.awaited.keep(request, cut)
            raise SlotTooSmall(needed, memory.nbytes)
        reached("writing")
        with BatchWriter(memory) as writer:
            self._batches.write(cut, writer)
            return Written(writer.commit(), writer.nbytes, cut.facts)


class _Custom:
    """A sampler of the user's own."""

    def __init__(self, graph: Graph, spec: CustomSpec, load: Callable[[], custom.Sampler]) -> None:
        self.spec = spec
        self._graph = graph
        self._load = load
        self.awaited: _Awaited[dict[str, Array]] = _Awaited()

    def write(self, request: Request, memory: Bytes, reached: Reached) -> Written:
        arrays = self._arrays(request)
        needed = layout((array.dtype, array.shape) for array in arrays.values()).nbytes
        if needed > memory.nbytes:
            self.awaited.keep(request, arrays)
            raise SlotTooSmall(needed, memory.nbytes)
        reached("writing")
        with BatchWriter(memory) as writer:
            for name, array in arrays.items():
                writer.array(name, array.dtype, array.shape)[...] = array
            return Written(writer.commit(), writer.nbytes, self._facts(request))

    def _arrays(self, request: Request) -> dict[str, Array]:
        awaited = self.awaited.take(request)
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
    inputs, of = min(feed.batch_size, feed.num_inputs), type_of(feed)
    return min(likely_bytes(spec, graph, inputs, of), LARGEST_SLOT)


def search(folders: Sequence[str]) -> None:
    """Looks for modules in these folders first, in this order, as the user's own process does."""
    found = [folder for folder in folders if folder]
    sys.path[:] = [*found, *(folder for folder in sys.path if folder not in found)]
