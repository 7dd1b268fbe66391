"""`SharedDistSamplingBackend`: one way of sampling, and the channels that read its batches.

This is the public class for those who know the reference design. It talks to a hub, its own or a
borrowed one, by the same messages as any other client, or samples in this process
(`num_workers=0`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, Self, TypeAlias, Unpack

from penstock.client.channel.backend_lease import BackendLease
from penstock.client.channel.batch import Batch
from penstock.client.channel.channel import Channel
from penstock.client.channel.channel_options import check_names
from penstock.client.channel.channel_registry import AnyChannel, ChannelRegistry
from penstock.client.channel.description import BackendStatistics, ChannelDescription, ChannelId
from penstock.client.channel.inline import InlineChannel
from penstock.client.channel.inputs import inputs_of, tables_of, warn_of_a_mask
from penstock.client.channel.readiness import wait_any
from penstock.client.channel.registration import Registration, prepared
from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_config import checked_workers, settled
from penstock.client.hub.hub_process import START_TIMEOUT_S, HubProcess
from penstock.client.naming import Where, is_same, spec_of
from penstock.errors import ChannelClosed
from penstock.graph import Graph
from penstock.hub.backends import check_spec
from penstock.option_types import ChannelKeywords, PoolKeywords
from penstock.rpc.deadline import Deadline, positive_seconds
from penstock.sampling.custom import Sampler
from penstock.sampling.kinds import InputKind, check, kind_of, tell_left_out
from penstock.sampling.spec import Spec
from penstock.wire.transport.unix import socket_address

Workers: TypeAlias = int | Literal["auto"]


class SharedDistSamplingBackend:
    """Samples for any number of channels, which share one pool of workers.

    The constructor starts nothing; `init_backend` does.

    Beside these arguments it takes the settings of a pool, such as `worker_concurrency`
    (`penstock.option_types.PoolKeywords`, docs/options.md).

    Args:
        source: A graph, for a pool of the backend's own; or a hub, whose pool is borrowed.
        sampling_config: A spec, the class of a user's sampler, or an instance of one whose
            attributes are numbers, text, lists, mappings and arrays.
        num_workers: A number, "auto" (as many as the machine has room for; the default), or 0 to
            make batches in this process.
        input_kind: What the inputs are, if the caller wants to state it; checked against the spec.
        start_timeout: Seconds within which all workers must be ready.
        address: Where other processes can join the backend's own hub.

    Raises:
        ValueError: An argument is not valid; the error names it.
        TypeError: There is no such option.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> spec = ps.NeighborSpec(num_neighbors=(2,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=1) as backend:
        ...     backend.register_input("mine", "train", batch_size=1, shuffle=True, seed=0)
        ...     for epoch in range(2):
        ...         backend.start_new_epoch_sampling("mine", epoch)
        ...         print([batch["n_id"].tolist() for batch in backend.batches("mine")])
        [[0, 2], [2, 1]]
        [[2, 1], [0, 2]]
    """

    def __init__(
        self,
        source: Graph | Hub,
        sampling_config: Spec | type[Any] | Sampler,
        *,
        num_workers: Workers | None = None,
        input_kind: str | InputKind | None = None,
        start_timeout: float = START_TIMEOUT_S,
        address: str | None = None,
        **options: Unpack[PoolKeywords],
    ) -> None:
        self._graph = _graph_of(source)
        num_workers = _workers(num_workers)
        self._where = Where.HERE if num_workers == 0 else Where.WORKERS
        self._spec = spec_of(sampling_config, self._where)
        self._given = sampling_config  # a class that is used here lives as long as this
        self._kind = _kind_of(self._spec, input_kind)
        check(self._spec, self._graph)
        tell_left_out(self._spec, self._graph)
        self._start_timeout = positive_seconds(start_timeout, "start_timeout")
        self._owned: Callable[[], HubProcess] | None = None
        self._hub: Hub | None = None
        # Workers of the worker group that runs a user's sampler in a borrowed pool.
        self._group: int | None = None
        if num_workers == 0:
            settled(options)  # not used here, but values that a pool refuses are refused here, too
            if address is not None:
                socket_address(address)
        elif isinstance(source, Graph):
            workers: Workers = "auto" if num_workers is None else num_workers
            self._owned = lambda: HubProcess(
                source, workers, address=address, start_timeout=start_timeout, **options
            )
            self._hub = self._owned()
        else:
            self._borrow(source, num_workers, {"address": address} if address else options)
        self._lease: BackendLease | None = None
        self._ready = self._shut = False
        self._starting = threading.RLock()  # reentrant: a signal handler may shut down during start
        self._channels = ChannelRegistry()
        self._owner = os.getpid()

    def _borrow(self, hub: Hub, num_workers: Workers | None, options: Any) -> None:
        for name in options:
            raise ValueError(f"{name} is given, but the pool is borrowed: ask its owner")
        if num_workers is not None and kind_of(self._spec).users_code(self._spec) is None:
            raise ValueError(
                f"num_workers is {num_workers!r}, but the pool is borrowed, and has its own size: "
                "use hub.resize(), or 0 to sample in this process"
            )
        self._hub = hub
        self._group = num_workers if isinstance(num_workers, int) else None

    # --- life --------------------------------------------------------------------------------

    def init_backend(self) -> None:
        """Start the workers if necessary, and return when all are ready. Idempotent.

        If it fails, it does so within `start_timeout` seconds, with the cause; it may then be
        called again.
        """
        self._check_process()
        with self._starting:
            self._check_not_shut()
            if self._ready:
                return
            prepared(self._spec, self._graph)  # before a hub is told which arrays the graph has
            check_spec(self._spec, self._graph)
            if self._hub is not None:
                self._lease = self._start(self._hub)
            self._ready = True
            if self._shut:  # shutdown() was called meanwhile
                self.shutdown()
                self._check_not_shut()

    def _start(self, hub: Hub) -> BackendLease:
        lease = BackendLease(hub, self._spec, self._group)
        deadline = Deadline(self._start_timeout)
        try:
            if isinstance(hub, HubProcess) and self._owned is not None:
                hub.start()
            lease.wait_for_workers(deadline)
        except BaseException:
            lease.close()
            if self._owned is not None:
                hub.close()
                self._hub = self._owned()
            raise
        return lease

    def shutdown(self) -> None:
        """Close all channels, and the hub if this backend owns it. Idempotent, in bounded time."""
        if os.getpid() != self._owner:
            return  # this is a fork's copy; the parent goes on using the backend
        self._shut, self._ready = True, False
        self._channels.close()
        with self._starting:
            if self._lease is not None:
                self._lease.close()
            if self._owned is not None and self._hub is not None:
                self._hub.close()

    def __enter__(self) -> Self:
        self.init_backend()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a backend cannot be pickled: send its address, and give a new one over there "
            "penstock.connect(address)"
        )

    @property
    def graph(self) -> Graph:
        """The graph that is sampled."""
        return self._graph

    @property
    def sampling_config(self) -> Spec:
        """The spec by which the graph is sampled."""
        return self._spec

    @property
    def hub(self) -> Hub | None:
        """The hub whose pool is used; None if batches are made in this process."""
        return self._hub

    @property
    def address(self) -> str | None:
        """The address at which other processes can join the hub with `penstock.connect`."""
        return None if self._hub is None else self._hub.address

    # --- channels ----------------------------------------------------------------------------

    def register_input(
        self,
        channel_id: ChannelId,
        sampler_input: Any = None,
        sampling_config: Spec | type[Any] | None = None,
        *,
        columns: Mapping[str, Any] | None = None,
        tables: Mapping[str, Any] | None = None,
        **channel_options: Unpack[ChannelKeywords],
    ) -> None:
        """Open a channel under `channel_id`.

        Args:
            channel_id: A number or text that no other channel of this backend has.
            sampler_input: Node ids, the name of a split, None for all nodes, or (node type, any of
                these). For a spec whose inputs are edges: their ends [2, n], None for all edges, or
                (edge type, either of these).
            sampling_config: If given, it must equal the backend's.
            columns: Arrays with a row for each input (`time`, `label`, …).
            tables: Arrays that belong to all inputs (`src_weight`, …). What a spec does with
                columns and tables is documented with the spec.
            **channel_options: The options of a channel: see
                `penstock.option_types.ChannelKeywords`, or docs/options.md.

        Raises:
            ValueError: An argument is not valid, or another channel has this id; the error names
                it.
            TypeError: There is no such option.
            Overloaded: The hub has no room for another channel.
        """
        self._check_ready()
        check_names(channel_options)
        asked = None if sampling_config is None else spec_of(sampling_config, self._where)
        if asked is not None and not is_same(asked, self._spec):
            raise ValueError(
                f"sampling_config is {sampling_config!r}; this backend's is {self._spec!r}"
            )
        with self._channels.opening(channel_id):
            more = tables_of(self._spec, columns, tables)
            inputs = inputs_of(self._graph, sampler_input, self._kind, columns, more)
            if self._kind is not InputKind.LINK:
                warn_of_a_mask(self._graph, sampler_input)
            try:
                registration = Registration.make(
                    self._graph, self._spec, inputs, channel_options, self._group
                )
                self._channels.add(channel_id, self._open(registration.named(str(channel_id))))
            except BaseException:
                inputs.close()
                raise

    def _open(self, registration: Registration) -> AnyChannel:
        if self._hub is None:
            return InlineChannel(self._graph, registration)
        return Channel(self._hub, registration)

    def unregister_input(self, channel_id: ChannelId) -> None:
        """Close a channel without waiting for anything. Does nothing if the channel is unknown.

        Args:
            channel_id: The channel.
        """
        self._check_process()
        self._channels.remove(channel_id)

    def start_new_epoch_sampling(
        self, channel_id: ChannelId, epoch: int, *, first: int = 0, first_step: int = 0
    ) -> None:
        """Start an epoch of a channel, and cancel what is left of the previous one.

        An epoch that is not newer is ignored, as is a channel that was unregistered.

        Args:
            channel_id: The channel.
            epoch: The epoch's number.
            first: Where to begin in the epoch's list of batches for all ranks.
            first_step: The first step to read.

        Raises:
            KeyError: The channel was never registered.
        """
        self._check_ready()
        channel = self._channels.get(channel_id)
        if channel is not None:
            with suppress(ChannelClosed):  # unregistered since it was looked up
                channel.start(epoch, first=first, first_step=first_step)

    def is_channel_epoch_done(self, channel_id: ChannelId, epoch: int) -> bool:
        """Return whether every batch of an epoch has ended; False for one that was never started.

        If nobody reads the channel, sampling stops when all slots are full; without a pool, nothing
        is sampled before it is read. See `Reader.is_epoch_done`.

        Args:
            channel_id: The channel.
            epoch: The epoch's number.
        """
        self._check_process()
        channel = self._channels.find(channel_id)
        return channel is not None and channel.is_epoch_done(epoch)

    def describe_channel(self, channel_id: ChannelId) -> ChannelDescription:
        """Return a short description of a channel; never raises.

        Args:
            channel_id: The channel.
        """
        channel = self._channels.find(channel_id)
        if channel is None:
            return ChannelDescription(channel_id)
        return ChannelDescription.of(channel_id, channel, channel.registration, self.num_workers)

    def reweigh(self, channel_id: ChannelId, weight: float) -> None:
        """Change a channel's share of the workers.

        Args:
            channel_id: The channel.
            weight: Its share, against the weights of other channels.
        """
        self._check_ready()
        self._channels[channel_id].reweigh(weight)

    # --- reading -----------------------------------------------------------------------------

    def next_batch(self, channel_id: ChannelId, timeout: float | None = None) -> Batch | None:
        """Return the next batch of a channel's epoch.

        Args:
            channel_id: The channel.
            timeout: Seconds to wait. None: no limit.

        Returns:
            The batch; None at the end of the epoch.

        Raises:
            TimeoutError: No batch came in time.
            SamplingError: The batch could not be made. The next call goes on with the batch after.
            WorkerDied: The batch lost a worker too often. Likewise.
        """
        self._check_ready()
        return self._channels[channel_id].next(timeout)

    def batches(self, channel_id: ChannelId) -> Iterator[Batch]:
        """Return an iterator over the remaining batches of a channel's epoch.

        Args:
            channel_id: The channel.
        """
        self._check_ready()
        return iter(self._channels[channel_id])

    def wait_any(
        self, channel_ids: Iterable[ChannelId], timeout: float | None = None
    ) -> list[ChannelId]:
        """Return those of the channels whose `next_batch` would answer at once.

        Waits for the first of them, at most `timeout` seconds; then the list may be empty.

        Args:
            channel_ids: The channels.
            timeout: Seconds to wait. None: no limit.
        """
        self._check_ready()
        channels = {channel_id: self._channels[channel_id] for channel_id in channel_ids}
        return wait_any(channels, Deadline(timeout))

    def statistics(self) -> BackendStatistics:
        """Return the hub's statistics, and those of each channel's reader in this process."""
        self._check_ready()
        numbers = {} if self._hub is None else self._hub.statistics()
        seen = {name: channel.statistics() for name, channel in self._channels.items()}
        return BackendStatistics(numbers, seen)

    @property
    def num_workers(self) -> int:
        """How many workers the pool is to have; 0 if there is none, or another process owns it."""
        return self._hub.num_workers if isinstance(self._hub, HubProcess) else 0

    def _check_ready(self) -> None:
        self._check_process()
        self._check_not_shut()
        if not self._ready:
            raise RuntimeError("the backend is not up: call init_backend() first")

    def _check_not_shut(self) -> None:
        if self._shut:
            raise ChannelClosed("the backend was shut down")

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this backend belongs to process {self._owner}, and does not survive a fork: make "
                "one here with penstock.connect(address), or start processes by 'spawn'"
            )


def _graph_of(source: object) -> Graph:
    if isinstance(source, Graph):
        return source
    if isinstance(source, Hub):
        return source.graph
    if isinstance(source, str) and source.startswith("unix://"):
        raise ValueError(
            f"source is {source!r}, an address; expected a graph or a hub: "
            "give penstock.connect(address)"
        )
    if isinstance(source, str | os.PathLike):
        raise ValueError(
            f"source is {source!r}, a path; expected a graph or a hub: give Graph.open(path)"
        )
    raise ValueError(
        f"source is a {type(source).__name__}; expected a graph, made by Graph.from_coo, "
        "Graph.from_pyg or Graph.open, or a hub"
    )


def _workers(given: Any) -> Workers | None:
    if given is None or (isinstance(given, str) and given == "auto"):
        return given  # type: ignore[return-value]
    return checked_workers(given, 0, "'auto', at least 1, or 0 to sample in this process")


def _kind_of(spec: Spec, given: str | InputKind | None) -> InputKind:
    """Return what the inputs of a spec are; `given` is what the user said, which must agree."""
    kind = InputKind.of(spec)
    named = kind if given is None else InputKind.named(given)
    # A user's sampler may call its inputs nodes or the nodes of a subgraph: both are nodes.
    are_nodes = InputKind.LINK not in (kind, named)
    if named is kind or (are_nodes and kind_of(spec).users_code(spec) is not None):
        return named
    said, wanted = type(spec).__name__, kind.value
    raise ValueError(f"input_kind is {given!r}; what {said} samples is {wanted!r}")
