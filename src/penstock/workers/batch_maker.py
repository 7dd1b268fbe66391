"""Makes batches: knows the graph, the ways of sampling, and the channels with their inputs.

Workers, inline loaders and `penstock replay` all use it, so that a batch is the same whoever makes
it. A batch maker belongs to one thread. It knows neither sockets nor messages, nor which process it
runs in.
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

# A slot takes only address space until it is touched, but address space is limited, too.
LARGEST_SLOT: Final = 1 << 30


class Written(msgspec.Struct, frozen=True):
    """A batch in memory: the layout of its arrays, its size, and its facts that are no arrays."""

    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Backend:
    """A spec, and what makes batches by it."""

    spec: Spec
    batches: Batches


@dataclass(frozen=True, slots=True)
class _Channel:
    backend: int
    feed: Feed
    given: ChannelInputs


class BatchMaker:
    """Makes batches. Calls `reached(stage)` at each stage of a batch, for tests of faults."""

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
        """Add arrays of the same graph that were made since (out-edges); existing ones stay."""
        self.graph = self.graph.with_arrays({**arrays, **self.graph.arrays})
        if self.graph.is_in_parts:  # rows that came into the cache are for all backends
            for number, backend in list(self._backends.items()):
                self.open_backend(number, backend.spec)

    def open_backend(self, number: int, spec: Spec) -> None:
        """Add a backend; `ValueError` if the spec does not fit this graph.

        A user's sampler is loaded with its first batch, or before by `load`: loading runs the
        user's code, and a batch can report its errors.
        """
        self._backends[number] = _Backend(spec, self._batches(spec))

    def close_backend(self, number: int) -> None:
        """Remove a backend; unknown ones are ignored."""
        self._backends.pop(number, None)

    def open_channel(
        self, number: int, backend: int, feed: Feed, given: ChannelInputs | None = None
    ) -> None:
        """Add a channel and its source of batches; `given` has the arrays of the feed."""
        given = ChannelInputs() if given is None else given
        check_feed(feed, self.graph, given)
        if (known := self._backends.get(backend)) is not None:
            check_kind(known.spec, feed, self.graph, given)
        self._channels[number] = _Channel(backend, feed, given)

    def close_channel(self, number: int) -> None:
        """Remove a channel and what was kept of its inputs; unknown ones are ignored."""
        known = self._channels.pop(number, None)
        if known is not None and known.backend in self._backends:
            self._backends[known.backend].batches.drop()

    def load(self, spec: Spec) -> None:
        """Load what a spec needs beyond the graph, before its backend is opened.

        That can only be a user's sampler; `SamplingError` shows what went wrong.
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
        batches = kind.batches(spec, self.graph)
        if not self.graph.is_in_parts:
            return batches
        from penstock.store.batches import batches_of_store

        return batches_of_store(self.graph, spec, batches)

    def seeds(self, channel: int, epoch: int, index: int) -> Ids:
        """Return the inputs of batch `index` of an epoch: nodes, or edges [2, inputs]."""
        known = self._channel(channel)
        return request_of(known.feed, known.given, epoch, index).seeds

    def sample(
        self,
        channel: int,
        epoch: int,
        index: int,
        memory: Bytes,
    ) -> Written:
        """Make batch `index` of an epoch in `memory`.

        Raises:
            SlotTooSmall: Says how much memory the batch needs. It can be asked for again with that
                much; work of the first attempt is reused where possible.
        """
        known = self._channel(channel)
        return self.make(known.backend, request_of(known.feed, known.given, epoch, index), memory)

    def make(self, backend: int, request: Request, memory: Bytes) -> Written:
        """Make a batch whose inputs the caller already has."""
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
    """Return bytes that are enough for any, or nearly any, batch; at most `LARGEST_SLOT`.

    Looks at sizes only.
    """
    inputs, of = min(feed.batch_size, feed.num_inputs), type_of(feed)
    return min(kind_of(spec).likely_bytes(spec, graph, inputs, of), LARGEST_SLOT)


def search(folders: Sequence[str]) -> None:
    """Search these folders for modules first, in this order, as the user's own process does."""
    found = [folder for folder in folders if folder]
    sys.path[:] = [*found, *(folder for folder in sys.path if folder not in found)]


def _key(spec: Spec) -> bytes:
    return msgspec.msgpack.encode(spec, order="deterministic")
