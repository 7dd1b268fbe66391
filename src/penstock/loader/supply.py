"""The channel that a loader reads: opened when first needed, and again where it must be.

A channel's epochs only go forward, and its inputs are those it was opened with. To go back, or to
take the inputs in another order, another channel is opened; the bytes do not depend on which.
"""

from __future__ import annotations

import logging
from typing import Any

from penstock.client.batch import Batch
from penstock.client.channel import Channel
from penstock.client.hub import Hub
from penstock.client.hub_process import HubProcess
from penstock.client.inline import InlineChannel
from penstock.client.inputs import inputs_of
from penstock.client.link_tables import tables_of
from penstock.client.reader import ReaderStatistics
from penstock.client.registration import Registration, prepared
from penstock.client.roster import AnyChannel
from penstock.client.terms import ChannelTerms
from penstock.graph import Graph
from penstock.hub.backends import check_spec
from penstock.loader.hubs import Lease
from penstock.loader.inputs import Inputs
from penstock.loader.maker import Maker
from penstock.loader.run import Run
from penstock.sampling.kinds import InputKind, check
from penstock.sampling.spec import CustomSpec, Spec

log = logging.getLogger(__name__)


class Supply:
    """Where a loader's batches come from: a pool it has a lease on, a given hub, or this thread."""

    def __init__(
        self, graph: Graph, spec: Spec, hub: Hub | None, lease: Lease | None, name: str
    ) -> None:
        if not isinstance(spec, CustomSpec):
            check(spec, graph)
        self.name = name
        self._graph = graph
        self._spec = spec
        self._given = hub
        self._lease = lease
        self._channel: AnyChannel | None = None
        self._fed: tuple[Inputs, ChannelTerms] | None = None
        self._closed = False

    def start(self, run: Run) -> None:
        """Has an epoch made, from where a run stands."""
        if run.is_uneven:
            if self.uses_pool:
                log.warning("%s: batches of unequal sizes are made in this process", self.name)
            return
        channel = self._channel
        if channel is None or channel.closed or run.epoch <= channel.epoch or not self._feeds(run):
            channel = self._open(run.inputs, run.terms)
        channel.start(run.epoch, first=run.plan.first, first_step=run.step)

    def next(self, run: Run, maker: Maker | None, patience: float | None) -> Batch | None:
        """The next batch of a run, None at its end; raises as `Reader.next` does."""
        if not run.is_uneven:
            assert self._channel is not None
            return self._channel.next(patience)
        assert maker is not None
        return None if run.is_over else run.make(maker)

    def due(self, run: Run) -> int:
        """The step after those that were taken."""
        if run.is_uneven or self._channel is None:
            return run.step
        return self._channel.statistics().due

    def hub(self) -> Hub | None:
        """The hub whose pool it is, started; None if there is none."""
        if self._lease is not None:
            return self._lease.hub()
        if isinstance(self._given, HubProcess):
            self._given.start()
        return self._given

    @property
    def uses_pool(self) -> bool:
        """Whether workers make the batches."""
        return self._lease is not None or self._given is not None

    def reader_statistics(self) -> ReaderStatistics | None:
        """What the reader of the present channel has seen."""
        return None if self._channel is None else self._channel.statistics()

    def hub_statistics(self) -> dict[str, Any]:
        """The hub's numbers; none if nothing has been read by way of one."""
        if self._channel is None or self._closed or (hub := self.hub()) is None:
            return {}
        return hub.statistics()

    def reweigh(self, weight: float) -> None:
        """Asks for another share of the workers."""
        if self._channel is not None:
            self._channel.reweigh(weight)

    def close(self) -> None:
        """Ends the channel, and gives the lease back. Idempotent."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()
        if self._lease is not None:
            self._lease.close()

    def _feeds(self, run: Run) -> bool:
        """Whether the channel has a run's inputs."""
        return self._fed is not None and self._fed[0] is run.inputs and self._fed[1] == run.terms

    def _open(self, inputs: Inputs, terms: ChannelTerms) -> AnyChannel:
        before, self._channel, self._fed = self._channel, None, None
        try:
            self._channel = channel = self._opened(inputs, terms)
        finally:
            if before is not None:  # only now, so that a hub keeps what the two have in common
                before.close()
        self._fed = inputs, terms
        return channel

    def _opened(self, inputs: Inputs, terms: ChannelTerms) -> AnyChannel:
        prepared(self._spec, self._graph)  # before a hub is told what the graph has
        check_spec(self._spec, self._graph)
        kind, columns = InputKind.of(self._spec), inputs.columns
        tables = tables_of(self._spec, columns, inputs.tables)
        shared = inputs_of(self._graph, inputs.sampler_input, kind, columns, tables)
        try:
            wishes = Registration.make(self._graph, self._spec, shared, terms).named(self.name)
            hub = self.hub()
            if hub is None:
                return InlineChannel(self._graph, wishes)
            return Channel(hub, wishes)
        except BaseException:
            shared.close()
            raise
