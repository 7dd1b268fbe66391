"""`DistServer`: a graph, its sampling and its data, as methods; used in this process or by RPC.

It is a client of a hub, its own or a lent one: fairness, retries and epochs are the hub's concern.
Calls from ranks reach the same methods through `server.dist.rpc`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, Unpack

from penstock.client.backend import SharedDistSamplingBackend
from penstock.client.dist.dataset import ServedDataset
from penstock.client.dist.queries import Queries
from penstock.client.dist_calls import DistCalls, Message
from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_config import settled
from penstock.client.hub.hub_process import START_TIMEOUT_S, HubProcess
from penstock.client.keywords import arguments_of, check_names
from penstock.errors import ChannelClosed, PenstockError
from penstock.graph import Graph
from penstock.kernels.arrays import check_integer
from penstock.option_types import PoolKeywords
from penstock.options import Limits, PoolOptions
from penstock.rpc.deadline import positive_seconds
from penstock.sampling.spec import Spec
from penstock.server.dist.backends import CLOSED, MAX_BACKENDS, ServedBackend, ServedBackends
from penstock.server.dist.channels import ServedChannel, ServedChannels
from penstock.server.dist.handles import HandleKind, Handles
from penstock.server.dist.input_registration import InputRegistration
from penstock.server.dist.samplers import backend_for, check_key, names_of, wanted_spec
from penstock.server.dist.seeds import StrPath
from penstock.store.answers import PartAnswers
from penstock.wire.requests import (
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    WorkerOptions,
)

log = logging.getLogger(__name__)

LOG_EVERY_N: Final = 1000
REQUEST_TIMEOUT_S: Final = 60.0
# A destroy takes a moment; it may take longer if it ends the backend, too.
SLOW_DESTROY_S: Final = 0.1
SLOW_LAST_DESTROY_S: Final = 2.0
# The session of callers in this process; it never ends.
IN_PROCESS: Final = -1


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The backends and channels that clients had not released when the server ended."""

    backends: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.backends or self.channels)

    def __str__(self) -> str:
        return f"channels: {list(self.channels)}, backends: {list(self.backends)}"


class DistServer(Queries, DistCalls):
    """Serves a graph, or a part of one. Nothing runs before the first backend or `start()`.

    `DistCalls` declares and documents the calls.

    Beside these arguments it takes the settings of a pool, such as `worker_concurrency`
    (`penstock.option_types.PoolKeywords`, docs/options.md).

    Args:
        data: The graph, or a part of one.
        hub: The hub to use; without one the server starts its own, run by `pool_options`.
        num_workers: Workers of its own hub; 0: batches are made in this process.
        samplers: User samplers that may be asked for: "module:Class", or the class.
        input_folders: Folders from which files of seeds may be read.
        request_timeout: Seconds that a call may wait for a batch.
        start_timeout: Seconds within which its own hub must come up.
        log_every_n: After so many fetches of a channel, a line in the log tells of them: the
            worker's key, their number, mean and longest time, and how many were slow.
        limits: Limits of an answer, of the inputs of one channel and of all, of a batch, and of the
            number of channels.
        max_backends: Limit of the number of backends.
        max_labels: Labels of an anchor, unless the request says otherwise.
        exit_by_ranks: Whether ranks may call `exit`.
        part_only: Whether a part of a graph may be sampled without its neighbours in other parts.

    Raises:
        ValueError: An argument is not valid; the error names it.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.DistServer(graph, num_workers=0)
        >>> server.get_dataset_meta().num_partitions, server.get_edge_index().tolist()
        (1, [[0, 1, 2], [1, 2, 0]])
        >>> bool(server.close())  # whether clients had left anything behind
        False
    """

    def __init__(
        self,
        data: Graph,
        hub: Hub | None = None,
        *,
        num_workers: int | Literal["auto"] = "auto",
        samplers: Sequence[str | type[Any]] = (),
        input_folders: Sequence[StrPath] = (),
        request_timeout: float = REQUEST_TIMEOUT_S,
        start_timeout: float = START_TIMEOUT_S,
        log_every_n: int = LOG_EVERY_N,
        limits: Limits | None = None,
        max_backends: int = MAX_BACKENDS,
        max_labels: int | None = None,
        exit_by_ranks: bool = True,
        part_only: bool = False,
        **pool_options: Unpack[PoolKeywords],
    ) -> None:
        beside = arguments_of(DistServer.__init__)
        check_names(pool_options, "option", PoolOptions, beside=beside)
        limits = limits or Limits()
        most = limits.max_answer_bytes
        dataset = ServedDataset(data, part_only=part_only)
        super().__init__(dataset, max_answer_bytes=most, max_labels=max_labels)
        self._check_hub(hub, pool_options)
        self._samplers = names_of(samplers)
        # Answers what samplers elsewhere ask, who read the part as one of a store.
        self.answers = PartAnswers(dataset.graph, most)
        self.input_registration = InputRegistration(self.dataset, input_folders, limits)
        self.request_timeout = positive_seconds(request_timeout, "request_timeout")
        self.log_every_n = check_integer(log_every_n, "log_every_n", 1, 2**63)
        self.exit_by_ranks = exit_by_ranks
        self._start_timeout = positive_seconds(start_timeout, "start_timeout")
        self._num_workers = num_workers
        self._pool_options = pool_options
        self._owns_hub = hub is None and num_workers != 0
        self._hub = self._own_hub() if self._owns_hub else hub
        self._numbers = Handles()
        self._backends = ServedBackends(
            self._numbers, check_integer(max_backends, "max_backends", 1, 2**31)
        )
        self._channels = ServedChannels(self._numbers)
        self._exit = threading.Event()
        self._life = threading.RLock()  # start and close exclude each other
        self._left: LeftBehind | None = None
        self._went = threading.Condition()  # notified when a channel has gone
        self.address: str | None = None  # where ranks connect, if it is served by TCP

    def _check_hub(self, hub: Hub | None, options: PoolKeywords) -> None:
        for name in options if hub is not None else ():
            raise ValueError(f"{name} is given, but the pool is lent: ask its owner")
        settled(options)  # also where there is no pool: what a pool refuses is refused

    def _own_hub(self) -> HubProcess:
        return HubProcess(
            self.dataset.sampled,
            self._num_workers,
            start_timeout=self._start_timeout,
            **self._pool_options,
        )

    # --- starting and ending -----------------------------------------------------------------

    @property
    def boot(self) -> int:
        """Return the id of this start of the server; every handle it gives out contains it."""
        return self._numbers.boot

    @property
    def hub(self) -> Hub | None:
        """Return the hub that samples; None if batches are made in this process."""
        return self._hub

    def start(self) -> None:
        """Start the hub, if it is the server's own. Idempotent; can be retried after an error."""
        with self._life:
            self._check_open()
            hub = self._hub
            if not self._owns_hub or not isinstance(hub, HubProcess):
                return
            try:
                hub.start()
            except BaseException:
                hub.close()
                self._hub = self._own_hub()
                raise

    def exit(self) -> bool:
        self._exit.set()
        return True

    def wait_for_exit(self, timeout: float | None = None) -> bool:
        return self._exit.wait(timeout)

    def drain(self, timeout: float) -> bool:
        """Wait until no channel is left, at most `timeout` seconds; return whether none is.

        Args:
            timeout: Seconds to wait. None: no limit.
        """
        with self._went:
            return self._went.wait_for(lambda: not self._channels.all(), timeout)

    def close(self) -> LeftBehind:
        """End all channels and backends, and the hub if it is the server's own. Idempotent.

        Never waits for a client.

        Returns:
            What clients had not released.
        """
        self._exit.set()
        with self._life:
            if self._left is None:
                left = tuple(each.worker_key or str(each.number) for each in self._channels.all())
                self._left = LeftBehind(tuple(each.key for each in self._backends.all()), left)
                for channel in self._channels.all():
                    self.destroy_sampling_input(channel.number)
                self._backends.close()
                if self._owns_hub and self._hub is not None:
                    self._hub.close()
            return self._left

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- backends ----------------------------------------------------------------------------

    def init_sampling_backend(
        self, request: InitSamplingBackendRequest, *, holder: int = IN_PROCESS
    ) -> int:
        self.dataset.check_sampling()
        key = check_key(request.backend_key)
        spec = wanted_spec(request, self._samplers)
        self._check_open()
        return self._backends.obtain(
            key, spec, lambda: self._made(spec, request.worker_options), holder
        )

    def _made(self, spec: Spec, options: WorkerOptions) -> SharedDistSamplingBackend:
        self.start()
        return backend_for(self.dataset.sampled, self._hub, spec, options, self._start_timeout)

    # --- channels ----------------------------------------------------------------------------

    def register_sampling_input(
        self, request: RegisterBackendRequest, *, holder: int = IN_PROCESS
    ) -> int:
        self._check_open()
        backend = self._backends.enter(request.backend_id)
        try:
            number = self._opened(backend, request, holder)
        except BaseException:
            self._backends.leave(backend, None)
            raise
        if self._left is not None:  # closed meanwhile
            self.destroy_sampling_input(number)
            raise ChannelClosed(CLOSED)
        return number

    def _opened(self, backend: ServedBackend, request: RegisterBackendRequest, holder: int) -> int:
        number = self._numbers.take(HandleKind.CHANNEL)
        channel = ServedChannel(
            number=number,
            backend=backend,
            worker_key=request.worker_key,
            holder=holder,
            log_every_n=self.log_every_n,
            nbytes=self.input_registration.register(backend, request, number),
        )
        self._backends.stay(backend, number)
        self._channels.add(channel)
        return number

    def start_new_epoch_sampling(
        self, channel_id: int, epoch: int, *, first: int = 0, first_step: int = 0
    ) -> None:
        channel = self._channels.find(channel_id)
        if channel is not None:
            channel.start(epoch, first, first_step, self.request_timeout)

    def fetch_one_sampled_message(self, channel_id: int) -> Message:
        channel = self._channels.find(channel_id)
        return (None, True) if channel is None else channel.fetch(self.request_timeout)

    def is_channel_epoch_done(self, channel_id: int, epoch: int) -> bool:
        channel = self._channels.find(channel_id)
        return channel is None or channel.is_epoch_done(epoch)

    def destroy_sampling_input(self, channel_id: int) -> None:
        self._destroy(channel_id)

    def check_holder(self, channel_id: int, holder: int) -> None:
        """Raise `PenstockError` if a channel is another session's: its number could be guessed."""
        if self._channels.holder_of(channel_id) not in (None, holder):
            raise PenstockError(f"channel {channel_id} was not opened by this connection")

    def release(self, holder: int) -> None:
        """Release what an ended session held; a rank that comes back for it gets an error."""
        for number in self._channels.of(holder):
            self._destroy(number, lost=True)
        self._backends.forget(holder)

    def _destroy(self, number: int, *, lost: bool = False) -> None:
        channel, began = self._channels.take(number, lost=lost), time.perf_counter()
        if channel is None:
            return
        backend = channel.backend
        backend.up.unregister_input(number)
        self.input_registration.give_back(channel.nbytes)
        was_last = self._backends.leave(backend, number)
        with self._went:
            self._went.notify_all()
        seconds = time.perf_counter() - began
        if seconds > (SLOW_LAST_DESTROY_S if was_last else SLOW_DESTROY_S):
            along = f" and its backend {backend.key!r}" if was_last else ""
            log.warning("slow: channel %d%s took %.3f s to destroy", number, along, seconds)

    # --- statistics --------------------------------------------------------------------------

    def statistics(self) -> dict[str, Any]:
        return {
            "boot": self.boot,
            "partition": self.dataset.number,
            "num_partitions": self.dataset.num_partitions,
            "backends": {
                str(each.number): {
                    "key": each.key,
                    "phase": each.phase.value,
                    "channels": len(each.channels),
                }
                for each in self._backends.all()
            },
            "channels": {str(each.number): each.numbers() for each in self._channels.all()},
            "exiting": self._exit.is_set(),
        }

    def hub_statistics(self) -> dict[str, Any]:
        started = not isinstance(self._hub, HubProcess) or self._hub.pid is not None
        if self._hub is None or not started:
            return {}
        return self._hub.statistics(self.request_timeout)

    def describe(self) -> str:
        channels, backends = len(self._channels.all()), len(self._backends.all())
        part = f"part {self.dataset.number} of {self.dataset.num_partitions}"
        line = f"server {self.boot:08x}: {part}, {backends} backends, {channels} channels"
        scheduler = self.hub_statistics().get("describe")
        return f"{line}\n{scheduler}" if scheduler else line

    def _check_open(self) -> None:
        if self._exit.is_set():
            raise ChannelClosed(CLOSED)
