"""Single batches of a graph at a server: each through a channel of its own, with one batch.

Everything random follows from (seed, epoch, index), so the bytes are those of `AdhocBatches`.
"""

from __future__ import annotations

import threading
from typing import Final

from penstock.client.channel.batch import Batch
from penstock.client.channel.channel import Channel
from penstock.client.channel.inputs import inputs_of, tables_of
from penstock.client.channel.registration import Registration
from penstock.client.hub.hub import Provider
from penstock.loader.source.inputs import Inputs
from penstock.sampling.kinds import InputKind
from penstock.sampling.spec import Spec

# Batches of unequal sizes cannot be a channel's.
UNEVEN: Final = (
    "batch_sampler gives batches of unequal sizes: these are made in the process that has the "
    "graph. Give batches of one size (the last may be smaller), or put the loader where the "
    "server is: on its host, penstock.connect maps the graph"
)


class RemoteAdhocBatches:
    """As `AdhocBatches`. Any thread; calls do not wait for each other, since each has a channel."""

    def __init__(self, provider: Provider, spec: Spec, inputs: Inputs) -> None:
        self._provider = provider
        self._spec = spec
        # From all inputs: the shift of labels must not depend on the inputs of one batch.
        self._tables = tables_of(spec, inputs.columns, inputs.tables)
        self._calls = 0
        self._lock = threading.Lock()

    def next_call(self) -> int:
        """Count a call of `loader(index)`, and return its number."""
        with self._lock:
            self._calls += 1
            return self._calls - 1

    def make(self, inputs: Inputs, seed: int, epoch: int, index: int, step: int = 0) -> Batch:
        """Make a batch of all these inputs, random by (seed, epoch, index)."""
        if not inputs.num:
            raise ValueError("index is empty: a server makes batches of one input or more")
        if index:
            raise ValueError(UNEVEN)
        with Channel(self._provider, self._registration(inputs, seed)) as channel:
            channel.start(epoch)
            batch = channel.next()
        assert batch is not None
        return batch

    def _registration(self, inputs: Inputs, seed: int) -> Registration:
        graph, kind = self._provider.graph, InputKind.of(self._spec)
        shared = inputs_of(graph, inputs.sampler_input, kind, inputs.columns, self._tables)
        try:
            return Registration.make(
                graph,
                self._spec,
                shared,
                {"batch_size": inputs.num, "seed": seed, "slots": 1, "job": "out of turn"},
            )
        except BaseException:
            shared.close()
            raise
