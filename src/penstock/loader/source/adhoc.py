"""Make single batches in the caller's thread, from any given inputs.

For batches that do not fit an even list: `loader(index)`, and batch samplers with batches of any
size. It needs nothing but memory, so it works in a forked process as well.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import numpy as np
import torch

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
from penstock.rpc.buffer_pool import BufferPool
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.request import Request
from penstock.sampling.spec import Spec
from penstock.wire.frames import Bytes, private_memory, read
from penstock.workers.batch_maker import BatchMaker, Written
from penstock.workers.failures import too_large

# The word "adhoc" in ASCII, and a version.
ADHOC_DOMAIN: Final = 0x6164686F63000001
_BACKEND: Final = 0
_KEPT: Final = 2  # buffers
_ROOM: Final = 1 << 20  # bytes to begin with; a batch that needs more says how much


class AdhocBatches:
    """Makes batches of one spec; any thread may call it, one at a time."""

    def __init__(self, graph: Graph, spec: Spec, inputs: Inputs) -> None:
        prepared(spec, graph)
        self._maker = BatchMaker(graph)
        self._maker.open_backend(_BACKEND, spec)
        # From all inputs: the shift of labels must not depend on the inputs of one batch.
        self._tables = tables_of(spec, inputs.columns, inputs.tables)
        self._memory = BufferPool(_KEPT)
        self._calls = 0
        self._lock = threading.Lock()

    def next_call(self) -> int:
        """Count a call of `loader(index)`, and return its number."""
        with self._lock:
            self._calls += 1
            return self._calls - 1

    def make(self, inputs: Inputs, seed: int, epoch: int, index: int, step: int = 0) -> Batch:
        """Make a batch of all these inputs, random by (seed, epoch, index)."""
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
    """Return what makes single batches: this process if it has the graph, else the server."""
    graph, hub = source.graph, source.hub
    if graph.address is not None and hub is not None:
        return RemoteAdhocBatches(hub, spec, inputs)
    return AdhocBatches(graph.here(no_workers(graph)), spec, inputs)


def adhoc_seed(seed: int) -> int:
    """Return the seed of a loader's ad-hoc batches: call k is batch 0 of epoch k.

    One of torch's workers is a copy of this process, and there are several, new ones in each epoch:
    the worker's own seed makes them differ.
    """
    stream = fold(ADHOC_DOMAIN, seed)
    worker = torch.utils.data.get_worker_info()
    return stream if worker is None else fold(stream, worker.seed & (2**64 - 1))
