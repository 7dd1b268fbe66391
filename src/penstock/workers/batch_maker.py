"""All that a process which samples knows: the graph, how to sample, for whom, into which memory.

Used by workers, by inline loaders and by `penstock replay` alike, so that a batch is the same
whoever makes it. A batch maker belongs to one thread. It knows neither sockets nor messages, nor
which process it is in.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.schema import Arrays
from penstock.kernels.arrays import Ids
from penstock.sampling.batches import Batches, Reached
from penstock.sampling.inputs import ChannelInputs, check_feed, check_kind, request_of, type_of
from penstock.sampling.kinds import kind_of
from penstock.sampling.request import Request
from penstock.sampling.spec import Feed, Spec
from penstock.wire.frames import BatchWriter
from penstock.wire.messages import ArrayLayout

Bytes = npt.NDArray[np.uint8]

# A slot is address space until it is touched, but not even of that there is any amount.
LARGEST_SLOT: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that lies in memory: where its arrays are, how far it reaches, what is no array."""

    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Backend:
    """A way of sampling, and what makes batches so."""

    spec: Spec
    batches: Batches


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
        self._loaded: dict[bytes, Batches] = {}

    def supplement(self, arrays: Arrays) -> None:
        """More arrays of the same graph, made since (out-edges); those that are here stay."""
        whole = {**arrays, **self.graph.arrays}
        self.graph = Graph(self.graph.schema, whole, self.graph.handle().version)

    def open_backend(self, number: int, spec: Spec) -> None:
        """Learns a way of sampling; ValueError if it makes no sense for this graph.

        A user's sampler is loaded with its first batch, or before by `load`: loading runs the
        user's code, and a batch can tell what came of it.
        """
        self._backends[number] = _Backend(spec, self._batches(spec))

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
            self._backends[known.backend].batches.drop()

    def load(self, spec: Spec) -> None:
        """Loads what a spec needs beyond the graph, before its backend is opened.

        That is a user's sampler, if anything; `SamplingError` shows what went wrong.
        """
        batches = self._batches(spec)
        batches.load()
        self._loaded[_key(spec)] = batches

    def _batches(self, spec: Spec) -> Batches:
        if (loaded := self._loaded.get(_key(spec))) is not None:
            return loaded
        kind = kind_of(spec)
        if kind.users_code(spec) is not None:
            search(self._search_path)
        return kind.batches(spec, self.graph)

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
        with BatchWriter(memory) as writer:
            facts = self._backends[backend].batches.make(request, writer, self._reached)
            return Written(writer.commit(), writer.nbytes, facts)

    def _channel(self, number: int) -> _Channel:
        if number not in self._channels:
            raise ValueError(f"channel {number} is not open here")
        return self._channels[number]


def slot_bytes_for(spec: Spec, graph: Graph, feed: Feed) -> int:
    """Bytes that will do for any batch, or for nearly any: not more than `LARGEST_SLOT`.

    Looks at sizes only.
    """
    inputs, of = min(feed.batch_size, feed.num_inputs), type_of(feed)
    return min(kind_of(spec).likely_bytes(spec, graph, inputs, of), LARGEST_SLOT)


def search(folders: Sequence[str]) -> None:
    """Looks for modules in these folders first, in this order, as the user's own process does."""
    found = [folder for folder in folders if folder]
    sys.path[:] = [*found, *(folder for folder in sys.path if folder not in found)]


def _key(spec: Spec) -> bytes:
    return msgspec.msgpack.encode(spec, order="deterministic")
