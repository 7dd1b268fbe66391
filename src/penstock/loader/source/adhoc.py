"""Batches made here and now, in the caller's thread, of whatever inputs are named.

For what has no place in an even list of batches: `loader(index)`, and samplers whose batches have
any size. Nothing but memory is needed, so it works in a process that was forked as well.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import numpy as np
import torch

from penstock.client.buffer_pool import BufferPool
from penstock.client.channel.batch import Batch
from penstock.client.channel.inputs import tables_of
from penstock.client.channel.registration import prepared
from penstock.graph import Graph
from penstock.graph.schema import EDGE
from penstock.kernels.reference import fold
from penstock.loader.source.inputs import Inputs, LinkInputs
from penstock.loader.source.remote_adhoc import RemoteAdhocBatches
from penstock.loader.source.sources import DataSource, no_workers
from penstock.options import LARGEST_BATCH
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.request import Request
from penstock.sampling.spec import Spec
from penstock.wire.frames import Bytes, private_memory, read
from penstock.workers.batch_maker import BatchMaker, Written
from penstock.workers.failures import too_large

# "adhoc", and a version.
ADHOC_DOMAIN: Final = 0x6164686F63000001
_BACKEND: Final = 0
_KEPT: Final = 2  # pieces of memory
_ROOM: Final = 1 << 20  # to begin with; what a batch needs beyond is found out


class AdhocBatches:
    """Makes batches of one spec; any thread, one at a time."""

    def __init__(self, graph: Graph, spec: Spec, inputs: Inputs) -> None:
        prepared(spec, graph)
        self._maker = BatchMaker(graph)
        self._maker.open_backend(_BACKEND, spec)
        # Of all inputs: what is added to labels does not depend on a batch's.
        self._tables = tables_of(spec, inputs.columns, inputs.tables)
        self._memory = BufferPool(_KEPT)
        self._calls = 0
        self._lock = threading.Lock()

    def next_call(self) -> int:
        """Counts the calls of `loader(index)`."""
        with self._lock:
            self._calls += 1
            return self._calls - 1

    def make(self, inputs: Inputs, seed: int, epoch: int, index: int, step: int = 0) -> Batch:
        """A batch of all these inputs, random as (seed, epoch, index) say."""
        began = time.perf_counter()
        with self._lock:
            request = self._request(inputs, seed, epoch, index)
            memory, written = self._write(request)
        return Batch(
            arrays=read(memory, written.layouts),
            facts=written.facts,
            epoch=epoch,
            step=step,
            index=index,
            cost=time.perf_counter() - began,
            dtypes={layout.name: layout.dtype for layout in written.layouts},
        )

    def _request(self, inputs: Inputs, seed: int, epoch: int, index: int) -> Request:
        positions = np.arange(inputs.num, dtype=np.int64)
        if isinstance(inputs, LinkInputs):
            seeds, node_type, edge_type = inputs.ends, "", inputs.edge_type or EDGE
        else:
            seeds, node_type, edge_type = inputs.ids, inputs.node_type or "", EDGE
        return Request(
            seed,
            epoch,
            index,
            positions if seeds is None else seeds,
            positions,
            node_type,
            edge_type,
            inputs.columns,
            self._tables,
        )

    def _write(self, request: Request) -> tuple[Bytes, Written]:
        memory = self._memory.lend(_ROOM)
        try:
            return memory, self._maker.make(_BACKEND, request, memory)
        except SlotTooSmall as small:
            if small.needed > LARGEST_BATCH:
                raise too_large(small, LARGEST_BATCH) from None
            memory = private_memory(small.needed)
        return memory, self._maker.make(_BACKEND, request, memory)


def adhoc_batches(
    source: DataSource, spec: Spec, inputs: Inputs
) -> AdhocBatches | RemoteAdhocBatches:
    """Whoever makes batches out of turn: this process if it has the graph, else who has it."""
    graph, hub = source.graph, source.hub
    if graph.address is not None and hub is not None:
        return RemoteAdhocBatches(hub, spec, inputs)
    return AdhocBatches(graph.here(no_workers(graph)), spec, inputs)


def adhoc_seed(seed: int) -> int:
    """What ad-hoc batches of a loader are random by: call k is batch 0 of epoch k.

    A worker of torch's is a copy of us, of which there are several, new ones in each epoch: its
    own seed tells them apart.
    """
    stream = fold(ADHOC_DOMAIN, seed)
    worker = torch.utils.data.get_worker_info()
    return stream if worker is None else fold(stream, worker.seed & (2**64 - 1))
