"""The channel that a loader reads: opened when first needed, and again when necessary.

A channel's epochs only go forward, and its inputs are fixed when it is opened. To go back, or to
take the inputs in another order, another channel is opened; the bytes do not depend on the channel.
"""

from __future__ import annotations

import logging
import os
import weakref
from dataclasses import replace
from typing import Any

from penstock.client.channel.batch import Batch
from penstock.client.channel.channel import Channel
from penstock.client.channel.channel_registry import AnyChannel
from penstock.client.channel.inline import InlineChannel
from penstock.client.channel.inputs import inputs_of, tables_of
from penstock.client.channel.readiness import wait_any
from penstock.client.channel.registration import Registration, prepared
from penstock.client.channel.warming import warm_for
from penstock.client.hub.hub import Provider
from penstock.client.hub.hub_process import HubProcess
from penstock.errors import ChannelClosed, HubGone
from penstock.graph.view import GraphView
from penstock.hub.backends import check_spec
from penstock.loader.epoch.run import Run
from penstock.loader.source.hubs import Lease
from penstock.loader.source.inputs import Inputs
from penstock.loader.source.remote_adhoc import UNEVEN
from penstock.loader.source.sources import no_workers
from penstock.option_types import ChannelKeywords
from penstock.rpc.deadline import Deadline
from penstock.sampling.kinds import InputKind, check, tell_left_out
from penstock.sampling.spec import Spec

log = logging.getLogger(__name__)


class BatchSource:
    """The source of a loader's batches: a leased pool, a given hub, or this thread."""

    def __init__(
        self, graph: GraphView, spec: Spec, hub: Provider | None, lease: Lease | None, name: str
    ) -> None:
        check(spec, graph)
        tell_left_out(spec, graph)
        if hub is None:
            graph.here(no_workers(graph))
        self.name = name
        self._graph = graph
        self._spec = spec
        self._given = hub
        self._lease = lease
        self._channel: AnyChannel | None = None
        self._fed: tuple[Inputs, ChannelKeywords, Provider | None] | None = None
        self._recoveries = 0  # of channels that were closed
        self._run: Run | None = None  # the run that was started last
        self._beside: weakref.WeakSet[BatchSource] = weakref.WeakSet()
        self._is_beside = self._told = False
        self._closed = False

    def beside(self, run: Run) -> BatchSource:
        """Return another source of the same hub, for a run that is read after this one moved on.

        It ends with this one, or when it is dropped.
        """
        if not self._told:
            self._told = True
            log.warning(
                "%s: epoch %d is read beside another iterator, by a channel of its own; the "
                "loader's state is that of the iterator that was read last",
                self.name,
                run.epoch,
            )
        other = BatchSource(
            self._graph, self._spec, self._given, self._lease, f"{self.name}-beside"
        )
        other._is_beside = True
        self._beside.add(other)
        return other

    def start(self, run: Run) -> None:
        """Start to make an epoch, from the position of a run."""
        self._run = run  # first, so that no other run takes what comes from here on
        if run.is_adhoc:
            if not run.by_user:
                self._graph.here(UNEVEN)
                if self.uses_pool:
                    log.warning("%s: batches of unequal sizes are made in this process", self.name)
            return
        channel, hub = self._channel, self.hub()
        stale = channel is None or channel.closed or run.epoch <= channel.epoch
        if channel is None or stale or not self._feeds(run, hub):
            channel = self._open(run.inputs, run.channel_options, hub)
        channel.start(run.epoch, first=run.plan.first, first_step=run.step)

    def resume(self, run: Run) -> None:
        """Rewind the channel to a run's position, or start the epoch there if it reads another."""
        channel = self._channel
        if (
            channel is not None
            and not channel.closed
            and not run.is_adhoc  # which no channel makes
            and self._run is run
            and channel.epoch == run.epoch
            and self._feeds(run, self.hub())
        ):
            channel.rewind(run.step)
        else:
            self.start(run)

    def is_for(self, run: Run) -> bool:
        """Return whether the next batches are this run's, and no other was started since."""
        return self._run is run

    def next(self, patience: float | None) -> Batch | None:
        """Return the next batch of an even run, None at its end; raises as `Reader.next` does."""
        assert self._channel is not None
        return self._channel.next(patience)

    def is_ready(self, run: Run) -> bool:
        """Return whether `next` would answer at once."""
        if run.is_adhoc or self._channel is None:
            return run.is_adhoc
        return bool(wait_any({0: self._channel}, Deadline(0)))

    def room(self) -> int | None:
        """Return how many more batches may be held before they are copied; None: any number."""
        return None if self._channel is None else self._channel.room

    def due(self, run: Run, asked: int) -> int:
        """Return the step after those taken, which may include the one asked for."""
        if run.is_adhoc:
            return asked + 1
        return asked if self._channel is None else self._channel.statistics().due

    def hub(self) -> Provider | None:
        """Return the hub of the pool, started; None if there is none."""
        if self._lease is not None:
            return self._lease.hub()
        if isinstance(self._given, HubProcess):
            self._given.start()
        return self._given

    @property
    def uses_pool(self) -> bool:
        """Return whether workers make the batches."""
        return self._lease is not None or self._given is not None

    @property
    def known_as(self) -> tuple[str, int]:
        """The job and process by which the hub knows the channel; for a server, the server's."""
        given = self._given
        return (self.name, os.getpid()) if given is None else given.known_as(self.name)

    @property
    def recoveries(self) -> int:
        """The number of times another boot of the hub had to be asked to go on."""
        before, channel = self._recoveries, self._channel  # another thread may change it
        return before if channel is None else before + channel.statistics().recoveries

    def hub_statistics(self) -> dict[str, Any]:
        """Return the hub's statistics; empty if no hub was read from, or it is gone.

        Any thread may call it. It asks the hub that was read from, and starts no other one.
        """
        fed = self._fed
        if self._closed or fed is None or (hub := fed[2]) is None:
            return {}
        try:
            return hub.statistics()
        except (HubGone, ChannelClosed):
            return {}

    def reweigh(self, weight: float) -> None:
        """Ask for another share of the workers."""
        for batch_source in (self, *self._beside):
            if batch_source._channel is not None:
                batch_source._channel.reweigh(weight)

    def close(self) -> None:
        """Close the channel and return the lease. Idempotent."""
        self._closed = True
        for other in list(self._beside):
            other.close()
        if self._channel is not None:
            self._channel.close()
        if self._lease is not None and not self._is_beside:
            self._lease.close()

    def _feeds(self, run: Run, hub: Provider | None) -> bool:
        """Return whether the channel has a run's inputs and options, from the same hub."""
        if self._fed is None:
            return False
        inputs, channel_options, of = self._fed
        return inputs is run.inputs and channel_options == run.channel_options and of is hub

    def _open(
        self, inputs: Inputs, channel_options: ChannelKeywords, hub: Provider | None
    ) -> AnyChannel:
        self._recoveries = self.recoveries
        before, self._channel, self._fed = self._channel, None, None
        try:
            self._channel = channel = self._opened(inputs, channel_options, hub)
        finally:
            # The old channel is closed only now, so that the hub keeps what the two share.
            if before is not None:
                before.close()
        self._fed = inputs, channel_options, hub
        return channel

    def _opened(
        self, inputs: Inputs, channel_options: ChannelKeywords, hub: Provider | None
    ) -> AnyChannel:
        prepared(self._spec, self._graph)  # before a hub is told which arrays the graph has
        check_spec(self._spec, self._graph)
        kind, columns = InputKind.of(self._spec), inputs.columns
        tables = tables_of(self._spec, columns, inputs.tables)
        shared = inputs_of(self._graph, inputs.sampler_input, kind, columns, tables)
        shared = replace(shared, groups=inputs.groups)
        try:
            registration = Registration.make(
                self._graph, self._spec, shared, channel_options
            ).named(self.known_as[0])
            if self._graph.is_in_parts:
                warm_for(self._graph, registration)
            if hub is None:
                return InlineChannel(self._graph.here(no_workers(self._graph)), registration)
            return Channel(hub, registration)
        except BaseException:
            shared.close()
            raise
